// How it looks, and who can use it: axe's opinion of every view, the keyboard, a phone, both colour
// schemes, and the pictures of docs/page.md.

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { axe, close, launch, open } from "./browser.mjs";
import { Consul } from "./consul.mjs";
import { Backend, Nginx, eventually } from "./nginx.mjs";
import { shrink } from "./png.mjs";

// Where pictures go; nowhere unless said.
const pictures = process.env.PEERAGE_PICTURES;
const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };
let browser, nginx, consul, backends, traffic;

before(async () => {
  browser = await launch();
  // In pictures they are the same ones each time.
  const [net, port] = pictures ? ["127.10.0", 8080] : ["127.0.0", 0];
  backends = await Promise.all([1, 2, 3, 4].map((n) => Backend.start(`${net}.${n}`, port)));
  consul = await Consul.start();
  consul.set(
    "shop",
    [5, 6, 7].map((n) => `${net}.${n}:8080`),
  );
  const [b1, b2, b3, b4] = backends.map((backend) => backend.address);
  nginx = await Nginx.start(`
    peerage_zone main 4m state={prefix}/main.json;
    peerage_consul dc1 server=${consul.url};
    upstream app {
        peerage main; server ${b1} weight=3; server ${b2}; server ${b3} backup;
        peerage_check interval=1s;
    }
    upstream orders-v1 { peerage main; server ${b2} weight=2; server ${b3}; server ${b4}; }
    upstream orders-v2 { peerage main; server ${b1}; server ${b4}; }
    upstream shop { peerage main; peerage_service shop consul=dc1; }
    upstream search {
        peerage main; server ${b4}; server ${net}.9:9200;
        peerage_check interval=1s;
    }
    upstream mail { peerage main; server ${net}.9:8025; peerage_check interval=1s; }
    server {
        listen 127.0.0.1:{port};
        location /api { peerage_api write=on; }
        location /dashboard/ { peerage_dashboard; }
    }
    server { listen 127.0.0.1:{web}; location / { proxy_pass http://app; } }`);
  for (const name of ["billing", "catalogue", "images", "login", "reports"]) {
    const servers = backends
      .slice(0, 3)
      .map(({ address }) => ({ server: address, labels: { rack: "r3" } }));
    await nginx.api("PUT", `upstreams/${name}`, { servers });
  }
  await nginx.api("POST", `upstreams/orders-v1/servers/${b3}/down`, {
    reason: "disk at 97 %",
    ttl: "4h",
  });
  await nginx.api("POST", `upstreams/app/servers/${b2}/drain`, { reason: "deploy 812" });
  const routes = { acme: "orders-v1", globex: "orders-v1", initech: "mail", live: "orders-v1" };
  for (const [key, upstream] of Object.entries(routes)) {
    await nginx.api("PUT", `routes/${key}`, { upstream, labels: { plan: "gold" } });
  }
  await nginx.api("PATCH", "routes/globex", { status: "suspended", reason: "unpaid" });
  traffic = setInterval(() => nginx.request().catch(() => null), 25);
});

after(async () => {
  clearInterval(traffic);
  await browser?.close();
  for (const backend of backends ?? []) backend.stop();
  await nginx?.end();
  consul?.stop();
});

// What axe finds serious or worse.
async function serious(page) {
  // Into a world of its own, which the policy of the page does not reach.
  await page.addScriptTag({ path: axe }).catch(() => null);
  const results = await page.evaluate(() => window.axe.run(document));
  const bad = results.violations.filter((it) => ["serious", "critical"].includes(it.impact));
  return bad.map((it) => `${it.id}: ${it.help}: ${it.nodes.map((node) => node.html).join(" ")}`);
}

const VIEWS = {
  overview: ["#/", ".item:visible"],
  upstream: ["#/u/app", "tbody tr:nth-child(3)"],
  machine: ["#/host/127.0.0.3", "tbody tr"],
  routes: ["#/routes", "tbody tr:nth-child(4)"],
  sources: ["#/sources", "tbody tr"],
  zone: ["#/zone", "dl"],
  events: ["#/events", "tbody tr"],
};

// Something is held from here on: it is said on every view.
test("a source holds a change", async () => {
  consul.set("shop", []);
  await eventually("it is held", async () => {
    return (await nginx.api("GET", "sources/consul/dc1:shop")).held;
  });
});

for (const [colorScheme, phone] of [
  ["light", false],
  ["dark", false],
  ["light", true],
  ["dark", true],
]) {
  test(`axe finds nothing serious, ${colorScheme}${phone ? ", on a phone" : ""}`, async () => {
    // axe is a script of its own, which the policy refuses: it is let in for this test alone.
    const options = { colorScheme, bypassCSP: true, ...(phone && PHONE) };
    const page = await open(browser, nginx, { hash: "#/none", ...options });
    for (const [name, [hash, there]] of Object.entries(VIEWS)) {
      await page.goto(`${nginx.url}/dashboard/${hash}`);
      await page.locator(there).first().waitFor();
      assert.deepEqual(await serious(page), [], name);
    }
    await page.goto(`${nginx.url}/dashboard/#/u/app`);
    await page.locator("tbody tr").first().getByRole("button", { name: "Down" }).click();
    await page.locator("dialog").waitFor();
    assert.deepEqual(await serious(page), [], "dialog");
    await page.keyboard.press("Escape");
    await page.locator("tbody tr").first().getByText("More", { exact: true }).click();
    await page
      .getByLabel(/Weight of/)
      .first()
      .fill("9");
    assert.deepEqual(await serious(page), [], "menu and edited weights");
    await page.goto(`${nginx.url}/dashboard/#/routes`);
    await page.getByRole("button", { name: "Move live" }).click();
    await page.locator("dialog .effect tbody tr").waitFor();
    assert.deepEqual(await serious(page), [], "the move of a route");
    await close(page);
  });
}

test("on a phone nothing is wider than the screen, and everything can be done", async () => {
  const page = await open(browser, nginx, PHONE);
  for (const [name, [hash, there]] of Object.entries(VIEWS)) {
    await page.goto(`${nginx.url}/dashboard/${hash}`);
    await page.locator(there).first().waitFor();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 390, `${name} is ${width} wide`);
  }
  await page.goto(`${nginx.url}/dashboard/#/u/orders-v1`);
  const row = page.locator("tbody tr", { hasText: backends[2].address });
  await row.getByRole("button", { name: "Up" }).tap();
  await page.locator("dialog").getByRole("button", { name: "Take up" }).tap();
  await page.locator(".toast", { hasText: "is up" }).waitFor();
  await page.locator(".toast").getByRole("button", { name: "Undo" }).tap();
  await page.locator(".toast", { hasText: "Undone" }).waitFor();
  const back = await nginx.server("orders-v1", backends[2].address);
  assert.deepEqual([back.admin.state, back.admin.reason], ["down", "disk at 97 %"]);
  await close(page);
});

test("the keyboard reaches everything, the focus stays while numbers change", async () => {
  const page = await open(browser, nginx, { hash: "#/u/app" });
  await page.locator("tbody tr:nth-child(3)").waitFor();
  await page.keyboard.press("Tab");
  assert.equal(
    await page.evaluate(() => document.activeElement.textContent),
    "Skip to the content",
  );
  await page.evaluate(() => document.activeElement.blur());
  const reached = new Set();
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press("Tab");
    reached.add(
      await page.evaluate(() => {
        const { activeElement: at } = document;
        return at.getAttribute("aria-label") ?? at.textContent;
      }),
    );
  }
  for (const { address } of backends.slice(0, 3)) {
    for (const what of ["Up", "Drain", "Down", "Weight of", "More about"]) {
      assert.ok(reached.has(`${what} ${address}`), `${what} ${address}`);
    }
  }
  const button = page.getByRole("button", { name: `Drain ${backends[0].address}` });
  await button.focus();
  const rate = page.locator("tbody tr").first().locator("td[data-heading='Requests/s'] span");
  const before = await rate.innerText();
  await eventually("another number", async () => (await rate.innerText()) !== before);
  assert.ok(await button.evaluate((node) => node === document.activeElement));
  await close(page);
});

test("times are those of the viewer's zone", async () => {
  const page = await open(browser, nginx, { hash: "#/u/app", timezoneId: "America/New_York" });
  const shown = page.locator("tbody tr:nth-child(2) time").first();
  await shown.waitFor();
  const iso = await shown.getAttribute("datetime");
  const hour = new Intl.DateTimeFormat("en-GB", {
    timeStyle: "medium",
    timeZone: "America/New_York",
  });
  assert.ok((await shown.getAttribute("title")).endsWith(hour.format(new Date(iso))), iso);
  await close(page);
});

// Has what differs each time, clocks and traffic, be the same until goOn(): taken again, a picture
// looks the same as long as the page does. Runs in the page.
function still() {
  const frame = window.requestAnimationFrame;
  const held = [];
  window.requestAnimationFrame = (draw) => held.push(draw);
  window.goOn = () => {
    window.requestAnimationFrame = frame;
    for (const draw of held) frame(draw);
  };
  for (const time of document.querySelectorAll("time")) time.textContent = "04:12:07";
  const busy = { "In flight": 1, "Requests/s": 40, "Errors/s": 0, "Time, ms": 2 };
  document.querySelectorAll("main tbody tr:has(.chart)").forEach((row, nth) => {
    Object.entries(busy).forEach(([heading, value], kind) => {
      const cell = row.querySelector(`td[data-heading="${heading}"]`);
      const top = nth === 0 ? value : 0;
      cell.querySelector("span").textContent = top;
      const wave = (i) => (top ? 8 + 6 * Math.sin(i / (kind + 2)) + 4 * Math.sin(i / 1.7) : 20);
      const points = Array.from({ length: 60 }, (_, i) => `${i},${wave(i).toFixed(1)}`);
      cell.querySelector("polyline").setAttribute("points", points.join(" "));
    });
  });
}

test("pictures of the main views", async () => {
  const page = await open(browser, nginx, {
    colorScheme: "light",
    viewport: { width: 1200, height: 720 },
  });
  const shoot = async (name) => {
    if (!pictures) return;
    await page.evaluate(still);
    const small = shrink(await page.screenshot({ caret: "hide" }));
    assert.ok(small.length < 60 * 1024, `${name}.png has ${small.length} bytes`);
    await writeFile(join(pictures, `${name}.png`), small);
    await page.evaluate(() => window.goOn());
  };
  await page.locator("main tbody tr", { hasText: "search" }).waitFor();
  await page.locator("#live[data-live=live]").waitFor();
  await shoot("overview");
  await page.goto(`${nginx.url}/dashboard/#/u/app`);
  const points = page.locator("tbody tr").first().locator("td[data-heading='Requests/s'] polyline");
  await eventually("some of a line", async () => {
    return ((await points.getAttribute("points")) ?? "").split(" ").length > 2;
  });
  await shoot("upstream");
  await page.locator("tbody tr").first().getByRole("button", { name: "Drain" }).click();
  await page.locator("dialog").getByLabel("Reason").fill("deploy 813");
  await shoot("drain");
  await page.keyboard.press("Escape");
  await page.getByLabel(`Weight of ${backends[0].address}`).fill("5");
  await page.getByRole("button", { name: "Preview and apply" }).click();
  await page.locator("dialog tbody tr").waitFor();
  await shoot("weights");
  await page.keyboard.press("Escape");
  const machine = backends[2].address.replace(/:.*/, "");
  await page.goto(`${nginx.url}/dashboard/#/host/${machine}`);
  await page.getByRole("button", { name: `Down machine ${machine}` }).click();
  await page.locator("dialog .touches li").first().waitFor();
  await shoot("machine");
  await page.keyboard.press("Escape");
  await page.goto(`${nginx.url}/dashboard/#/routes`);
  await page.getByRole("button", { name: "Move live" }).click();
  await page.locator("dialog .effect tbody tr").waitFor();
  await shoot("routes");
  await page.keyboard.press("Escape");
  await page.emulateMedia({ colorScheme: "dark" });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto(`${nginx.url}/dashboard/#/u/app`);
  await page.locator("tbody tr").first().waitFor();
  await shoot("phone");
  await close(page);
});
