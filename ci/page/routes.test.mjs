// Routes: found among many, moved, suspended; an alias that is switched between blue and green; what
// somebody else does meanwhile.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { close, launch, open } from "./browser.mjs";
import { Backend, Nginx, eventually } from "./nginx.mjs";

let browser, nginx, blue, green;

before(async () => {
  browser = await launch();
  [blue, green] = [await Backend.start(), await Backend.start("127.0.0.2")];
  blue.says = "blue";
  green.says = "green";
  nginx = await Nginx.start(`
    peerage_zone main 4m;
    upstream app { peerage main name=$peerage_route; }
    server {
        listen 127.0.0.1:{port};
        location /api { peerage_api write=on; client_max_body_size 8m; }
        location /dashboard/ { peerage_dashboard; }
    }
    server {
        listen 127.0.0.1:{web};
        location / { peerage_route live; proxy_pass http://app; }
        location /tenant/ { peerage_route $arg_t; proxy_pass http://app; }
    }`);
  for (const [name, { address }] of Object.entries({ "app-blue": blue, "app-green": green })) {
    await nginx.api("PUT", `upstreams/${name}`, { servers: [{ server: address }] });
  }
  await nginx.api("PUT", "upstreams/orders", { servers: [{ server: green.address }] });
  await nginx.api("PUT", "upstreams/dead", { servers: [] });
  const lines = [["live", "app-blue"]];
  // Keys that are whole numbers, too: an object in the browser has them first.
  for (let i = 0; i < 130; i++) lines.push([`${i % 2 ? "" : "tenant-"}${950 + i}`, "orders"]);
  lines.push(["eu/acme", "orders"], ["eu/acme & sons", "orders"], ["zoë", "orders"]);
  const text = lines.map(([key, upstream]) => JSON.stringify({ key, upstream })).join("\n");
  await nginx.api("POST", "routes", `${text}\n`);
});

after(async () => {
  await browser?.close();
  blue?.stop();
  green?.stop();
  await nginx?.end();
});

const route = (key) => nginx.api("GET", `routes/${encodeURIComponent(key)}`);
const rows = (page) => page.locator("main tbody tr");
const rowOf = (page, key) => rows(page).filter({ has: page.getByText(key, { exact: true }) });
const dialog = (page) => page.locator("dialog");
const say = (page, name) => dialog(page).getByRole("button", { name, exact: true }).click();
const toast = (page, text) => page.locator(".toast", { hasText: text });
const ask = (page, what, key) => page.getByRole("button", { name: `${what} ${key}`, exact: true });

async function seek(page, key, upstream = "") {
  await page.getByLabel("Key, or how it begins").fill(key);
  await page.getByLabel("Upstream", { exact: true }).fill(upstream);
  await page.keyboard.press("Enter");
}

async function undo(page, text) {
  await toast(page, text).first().getByRole("button", { name: "Undo" }).click();
  await toast(page, "Undone: ").filter({ hasText: text }).waitFor();
}

test("a route is found among many, by its key, its beginning, its upstream", async () => {
  const page = await open(browser, nginx, { allowed: ["status of 404"] });
  await page.getByRole("link", { name: "Routes" }).click();
  await eventually("a page of them", async () => (await rows(page).count()) === 100);
  await page.getByRole("button", { name: "More", exact: true }).click();
  await eventually("the rest", async () => (await rows(page).count()) === 134);
  const keys = await rows(page).locator("b").allInnerTexts();
  assert.equal(new Set(keys).size, 134);
  assert.deepEqual(
    keys,
    [...keys].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))),
  );
  await seek(page, "eu/acme");
  await eventually("both", async () => (await rows(page).count()) === 2);
  await seek(page, "tenant-");
  await eventually("those", async () => (await rows(page).count()) === 65);
  await seek(page, "", "app-blue");
  await eventually("one", async () => (await rows(page).count()) === 1);
  await rowOf(page, "live").getByText("1 of 1 server").waitFor();
  await seek(page, "nobody");
  await page.getByText("There is no such route.").waitFor();
  // From an upstream to the routes that lead to it.
  await page.goto(`${nginx.url}/dashboard/#/u/orders`);
  await page.getByText("that lead here: 1001, 1003, 1005, 1007, 1009, and more").waitFor();
  await nginx.api("PATCH", "routes/1001", { upstream: "app-green" });
  await page.getByText("that lead here: 1003, 1005").waitFor();
  await nginx.api("PATCH", "routes/1001", { upstream: "orders" });
  await page.getByText("that lead here: 1001, 1003").waitFor();
  await page.locator("main").getByRole("link", { name: "Routes" }).click();
  await eventually("a page of its", async () => (await rows(page).count()) === 100);
  await close(page);
});

test("an alias is switched in two clicks, with what that does, and back", async () => {
  const page = await open(browser, nginx, { hash: "#/routes/app-blue" });
  assert.equal(await nginx.request(), "blue");
  await ask(page, "Move", "live").click();
  // The other one of the two is there already, with its health.
  await dialog(page).getByText("Servers that take requests there: 1 of 1 server").waitFor();
  assert.match(
    await dialog(page).locator("tbody tr", { hasText: "routes/live" }).innerText(),
    /app-blue\s+app-green/,
  );
  assert.equal((await route("live")).upstream, "app-blue");
  await say(page, "Move");
  await toast(page, "live leads to app-green").waitFor();
  assert.equal((await route("live")).upstream, "app-green");
  assert.equal(await nginx.request(), "green");
  await rowOf(page, "live").getByRole("link", { name: "app-green" }).waitFor();
  await undo(page, "live leads to app-green");
  assert.equal(await nginx.request(), "blue");
  await rowOf(page, "live").getByRole("link", { name: "app-blue" }).waitFor();
  await close(page);
});

test("a route to where nobody serves is only made by one who was told", async () => {
  const page = await open(browser, nginx, { allowed: ["status of 409"] });
  await page.getByRole("link", { name: "Routes" }).click();
  await seek(page, "live");
  await ask(page, "Move", "live").click();
  await dialog(page).getByLabel("To upstream").fill("dead");
  await dialog(page).getByText("No server takes requests there").waitFor();
  await dialog(page).getByLabel("To upstream").fill("none");
  await dialog(page).locator(".effect.harm").getByText("none").waitFor();
  await say(page, "Move");
  await dialog(page).locator(".wrong").getByText("none").waitFor();
  assert.equal((await route("live")).upstream, "app-blue");
  await close(page);
});

test("a tenant is suspended and is back, its reason is data", async () => {
  const page = await open(browser, nginx, { hash: "#/routes", allowed: ["status of 404"] });
  const tenant = () => fetch(`http://127.0.0.1:${nginx.web}/tenant/?t=eu/acme`);
  const reason = "<b onclick='alert(1)'>unpaid</b>";
  await seek(page, "eu/acme");
  assert.equal((await tenant()).status, 200);
  await ask(page, "Suspend", "eu/acme").click();
  await say(page, "Suspend");
  assert.equal((await route("eu/acme")).status, "active");
  await dialog(page).getByLabel("Reason").fill(reason);
  await say(page, "Suspend");
  await rowOf(page, "eu/acme").getByText("suspended").waitFor();
  await rowOf(page, "eu/acme").getByText(reason).waitFor();
  assert.equal((await tenant()).status, 403);
  await ask(page, "Resume", "eu/acme").click();
  await say(page, "Resume");
  await rowOf(page, "eu/acme").locator(".badge", { hasText: "active" }).waitFor();
  assert.equal((await tenant()).status, 200);
  await undo(page, "eu/acme is active");
  const { status, reason: said } = await route("eu/acme");
  assert.deepEqual([status, said], ["suspended", reason]);
  await nginx.api("PATCH", "routes/eu%2Facme", { status: "active", reason: "" });
  // Nobody asked for it: the event tells.
  await rowOf(page, "eu/acme").locator(".badge", { hasText: "active" }).waitFor();
  await close(page);
});

test("of two who move a route the second is shown what the first one did", async () => {
  const page = await open(browser, nginx, { hash: "#/routes", allowed: ["status of 4"] });
  await seek(page, "zoë");
  await ask(page, "Move", "zoë").click();
  await dialog(page).getByLabel("To upstream").fill("app-blue");
  await nginx.api("PATCH", `routes/${encodeURIComponent("zoë")}`, { upstream: "app-green" });
  await say(page, "Move");
  await dialog(page).getByText("Somebody else has changed this route").waitFor();
  const line = dialog(page).locator("tr.changed", { hasText: "upstream" });
  assert.match(await line.innerText(), /orders\s+app-green\s+app-blue/);
  assert.equal((await route("zoë")).upstream, "app-green");
  await say(page, "Go on from what is there now");
  await dialog(page).getByText("It leads to app-green").waitFor();
  await dialog(page).getByLabel("To upstream").fill("app-blue");
  await say(page, "Move");
  await toast(page, "zoë leads to app-blue").waitFor();
  // Undo goes over nobody either.
  await nginx.api("PATCH", `routes/${encodeURIComponent("zoë")}`, { reason: "theirs" });
  await toast(page, "zoë leads to app-blue").getByRole("button", { name: "Undo" }).click();
  await toast(page, "Not undone").waitFor();
  assert.equal((await route("zoë")).upstream, "app-blue");
  await close(page);
});

test("an upstream that routes name is not removed by mistake", async () => {
  const page = await open(browser, nginx, { hash: "#/u/orders", allowed: ["status of 409"] });
  await page.getByRole("button", { name: "Remove the upstream" }).click();
  await dialog(page).locator(".wrong").getByText("route").waitFor();
  await say(page, "Remove");
  await eventually("it is refused", async () => {
    return (await nginx.api("GET", "upstreams/orders")).name === "orders";
  });
  await page.keyboard.press("Escape");
  await close(page);
});
