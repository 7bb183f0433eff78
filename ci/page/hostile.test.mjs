// What the API says is data: names and reasons that look like markup are shown as they are.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { close, launch, open } from "./browser.mjs";
import { Nginx } from "./nginx.mjs";

const MARKUP = `<img src=x onerror="document.title='run'"><script>document.title='run'</script>`;
const QUOTED = `"><svg onload=alert(1)>{{7*7}}\${7*7}' onclick='alert(2)`;
let browser, nginx;

before(async () => {
  browser = await launch();
  nginx = await Nginx.start(`
    peerage_zone main 1m state={prefix}/main.json;
    upstream app { peerage main; server 127.0.0.1:1; server 127.0.0.1:2; }
    server {
        listen 127.0.0.1:{port};
        location /api { peerage_api write=on; }
        location /dashboard/ { peerage_dashboard; }
    }`);
  await nginx.api("PUT", "upstreams/__proto__", { servers: [{ server: "127.0.0.1:3" }] });
  await nginx.api("PUT", "upstreams/constructor", { servers: [{ server: "127.0.0.1:4" }] });
  await nginx.api("PATCH", "upstreams/app/servers/127.0.0.1:1", {
    labels: { [MARKUP.slice(0, 60)]: MARKUP.slice(0, 60), __proto__x: QUOTED.slice(0, 60) },
  });
  await nginx.api("POST", "upstreams/app/servers/127.0.0.1:1/down", { reason: MARKUP });
  await nginx.api("POST", "upstreams/__proto__/servers/127.0.0.1:3/drain", { reason: QUOTED });
  for (const key of [MARKUP, QUOTED, "__proto__"]) {
    const body = { upstream: "app", reason: MARKUP, labels: { __proto__x: QUOTED.slice(0, 60) } };
    await nginx.api("PUT", `routes/${encodeURIComponent(key)}`, body);
  }
  await nginx
    .api("POST", "hosts/10.9.9.9/down", { reason: MARKUP, missing: "ok" })
    .catch(() => null);
});

after(async () => {
  await browser?.close();
  await nginx?.end();
});

for (const hash of [
  "#/",
  "#/u/app",
  "#/u/__proto__",
  "#/u/constructor",
  "#/events",
  "#/host/127.0.0.1",
  "#/routes",
  "#/zone",
]) {
  test(`nothing of it runs: ${hash}`, async () => {
    const page = await open(browser, nginx, { hash });
    const said = { "#/u/constructor": "127.0.0.1:4", "#/zone": "Room", "#/u/__proto__": QUOTED };
    await page
      .getByText(said[hash] ?? MARKUP)
      .first()
      .waitFor();
    assert.equal(await page.locator("main img, main script, main svg:not(.chart)").count(), 0);
    assert.notEqual(await page.title(), "run");
    await close(page);
  });
}

test("nor of an address of the page", async () => {
  for (const hash of [
    `#/u/${encodeURIComponent(MARKUP)}`,
    `#/host/${encodeURIComponent(QUOTED)}`,
    `#/routes/${encodeURIComponent(MARKUP)}`,
    "#/u/%ff",
    "#/__proto__",
  ]) {
    const page = await open(browser, nginx, { hash, allowed: ["status of 404", "status of 400"] });
    await page.locator("main h2").first().waitFor();
    await page.locator("#live[data-live=live]").waitFor();
    assert.equal(await page.locator("main img, main script").count(), 0);
    assert.notEqual(await page.title(), "run");
    await close(page);
  }
});

test("a reason that is markup is shown as it was said", async () => {
  const page = await open(browser, nginx, { hash: "#/u/app" });
  const row = page.locator("tbody tr", { hasText: "127.0.0.1:2" });
  await row.getByRole("button", { name: "Drain" }).click();
  await page.locator("dialog").getByLabel("Reason").fill(MARKUP);
  await page.locator("dialog").getByLabel("Do it all the same").check();
  await page.locator("dialog").getByRole("button", { name: "Drain", exact: true }).click();
  await row.getByText(MARKUP).first().waitFor();
  assert.equal(await page.locator("main img, .toast img").count(), 0);
  await page.locator(".toast").first().waitFor();
  page.wrongs = page.wrongs.filter((said) => !said.includes("status of 409"));
  await close(page);
});
