// What changes is shown as it changes; what is in trouble is said.

import assert from "node:assert/strict";
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { close, launch, open } from "./browser.mjs";
import { Backend, Nginx, eventually } from "./nginx.mjs";

let browser, nginx, backend;
const conf = () => `
    peerage_zone main 1m state={prefix}/state/main.json flush=100ms;
    upstream app { peerage main; server ${backend.address}; server 127.0.0.9:1 max_fails=0; }
    server {
        listen 127.0.0.1:{port};
        location /api { peerage_api write=on; }
        location /dashboard/ { peerage_dashboard; }
    }`;

before(async () => {
  browser = await launch();
  backend = await Backend.start();
  nginx = await Nginx.start(conf());
});

after(async () => {
  await browser?.close();
  backend?.stop();
  await nginx?.end();
});

const live = (page, state) => page.locator(`#live[data-live=${state}]`).waitFor({ timeout: 30000 });
const trouble = (page) => page.locator("main tbody tr", { hasText: "127.0.0.9:1" });
const verb = (verb) => nginx.api("POST", `upstreams/app/servers/127.0.0.9:1/${verb}`);

// What a browser says of a server that is away.
const away = ["net::ERR_", "status of 50", "status of 410"];

test("what somebody else does is there within a second", async () => {
  const page = await open(browser, nginx);
  await live(page, "live");
  await page.getByText("Everything is up.").waitFor();
  const begun = Date.now();
  await verb("down?reason=elsewhere");
  await trouble(page).getByText("elsewhere").waitFor();
  await page.getByText("1 of 2 servers", { exact: true }).waitFor();
  assert.ok(Date.now() - begun < 1000, `${Date.now() - begun} ms`);
  await verb("up");
  await page.getByText("Everything is up.").waitFor();
  await close(page);
});

test("events that are cut off are said to be, and nothing is missed", async () => {
  const page = await open(browser, nginx, { allowed: away });
  await live(page, "live");
  await nginx.stop();
  await page.locator("#banners").getByText("The API does not answer").waitFor();
  assert.ok(await page.evaluate(() => document.body.classList.contains("stale")));
  await live(page, "lost");
  // What happens before the page is back is no event for it any more: their numbers begin anew.
  await page.route(/\/api\//, (route) => route.abort());
  await nginx.run();
  await verb("down?reason=meanwhile");
  await nginx.api("PUT", "upstreams/fresh", { servers: [] });
  await page.unroute(/\/api\//);
  await trouble(page).getByText("meanwhile").waitFor();
  await page.locator(".item", { hasText: "fresh" }).waitFor();
  await live(page, "live");
  await page
    .locator("#banners")
    .getByText("The API does not answer")
    .waitFor({ state: "detached" });
  await verb("up");
  await trouble(page).waitFor({ state: "detached" });
  await close(page);
});

test("a reload goes unnoticed", async () => {
  const page = await open(browser, nginx, { allowed: away });
  await live(page, "live");
  nginx.reload();
  await page.evaluate(() => {
    window.seen = 0;
    new MutationObserver(() => window.seen++).observe(document.getElementById("banners"), {
      childList: true,
    });
  });
  await page.waitForRequest((request) => request.url().includes("/events"));
  await live(page, "live");
  await verb("down?reason=after");
  await trouble(page).getByText("after").waitFor();
  await verb("up");
  assert.equal(await page.evaluate(() => window.seen), 0);
  await close(page);
});

test("where no stream comes through, events are polled", async () => {
  const page = await open(browser, nginx, { hash: "#/none", allowed: [...away, "Failed to load"] });
  await page.route(/\/events/, (route) => {
    const stream = route.request().headers().accept === "text/event-stream";
    return stream ? route.fulfill({ status: 502, body: "no" }) : route.continue();
  });
  await page.reload();
  await live(page, "polling");
  await verb("down?reason=polled");
  await trouble(page).getByText("polled").waitFor();
  await verb("up");
  await trouble(page).waitFor({ state: "detached" });
  await close(page);
});

test("a state file that cannot be written is said until it can", async () => {
  const page = await open(browser, nginx);
  const state = join(nginx.prefix, "state");
  // nginx makes a directory that is away, but goes over no file.
  await rename(state, `${state}.away`);
  await writeFile(state, "");
  await verb("down?reason=unwritten");
  await page
    .locator("#banners")
    .getByText("The state file cannot be written")
    .waitFor({ timeout: 30000 });
  await page.locator("#banners").getByRole("link", { name: "Details" }).click();
  await page.locator("dd", { hasText: /^\d+: .* since / }).waitFor();
  await rm(state);
  await rename(`${state}.away`, state);
  await verb("up");
  const gone = page.locator("#banners").getByText("The state file cannot be written");
  await gone.waitFor({ state: "detached", timeout: 30000 });
  await close(page);
});

test("a page that nobody sees holds no connection", async () => {
  const page = await open(browser, nginx, { allowed: away });
  await live(page, "live");
  const hide = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  const ended = page.waitForEvent("requestfailed", (request) => request.url().includes("/events"));
  await hide(true);
  await ended;
  await verb("down?reason=unseen");
  await hide(false);
  await trouble(page).getByText("unseen").waitFor();
  await verb("up");
  await close(page);
});

test("numbers are those of the traffic", async () => {
  await nginx.write(
    `${conf()} server { listen 127.0.0.1:{web}; location / { proxy_pass http://app; } }`,
  );
  await verb("down");
  nginx.reload();
  await eventually("it serves", () => nginx.request().catch(() => null));
  const page = await open(browser, nginx, { hash: "#/u/app", allowed: away });
  const row = page.locator("tbody tr", { hasText: backend.address });
  await row.waitFor();
  const rate = row.locator("td[data-heading='Requests/s'] span");
  const traffic = setInterval(() => nginx.request().catch(() => null), 20);
  try {
    await eventually("a rate", async () => {
      const shown = Number(await rate.innerText());
      return shown > 20 && shown < 60;
    });
  } finally {
    clearInterval(traffic);
  }
  const line = row.locator("td[data-heading='Requests/s'] polyline");
  await eventually("a line", async () => (await line.getAttribute("points")).includes(" "));
  const held = nginx.request("/hold");
  await row.locator("td[data-heading='In flight'] span", { hasText: /^1$/ }).waitFor();
  backend.release();
  await held;
  await verb("up");
  await close(page);
});
