// 10,000 upstreams: something to see within a second, and no moment in which the page does not
// follow its user.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { close, launch, open } from "./browser.mjs";
import { Nginx } from "./nginx.mjs";

const COUNT = 10000;
const name = (i) => `svc-${String(i).padStart(5, "0")}`;
let browser, nginx;

before(async () => {
  browser = await launch();
  nginx = await Nginx.start(`
    peerage_zone main 64m;
    client_max_body_size 16m;
    upstream first { peerage main; server 127.0.0.1:1; }
    server {
        listen 127.0.0.1:{port};
        location /api { peerage_api write=on; }
        location /dashboard/ { peerage_dashboard; }
    }`);
  const lines = Array.from({ length: COUNT - 1 }, (_, i) => {
    const servers = [1, 2, 3].map((n) => ({ server: `10.${n}.${i >> 8}.${i & 255}:80` }));
    if (i % 100 === 7) servers[0].admin = { state: "down", reason: "tested" };
    return JSON.stringify({ upstream: name(i), servers });
  });
  await nginx.api("PUT", "zones/main/import", `${lines.join("\n")}\n`);
});

after(async () => {
  await browser?.close();
  await nginx?.end();
});

test("the first of them are there within a second, and all soon", async () => {
  const page = await open(browser, nginx);
  await page.locator(".item a", { hasText: name(0) }).waitFor();
  const { paint, shown } = await page.evaluate(() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    shown: performance.now(),
  }));
  assert.ok(paint < 1000, `first paint after ${paint} ms`);
  assert.ok(shown < 1500, `the list after ${shown} ms`);
  await page.getByText("10,000 of 10,000 upstreams").waitFor();
  // Only what is seen is there.
  assert.ok((await page.locator(".item").count()) < 100);
  await page.getByText("100 servers are not up").waitFor();
  console.log(`first paint ${Math.round(paint)} ms, the list ${Math.round(shown)} ms`);
  await close(page);
});

test("no task is longer than 50 ms while it is scrolled, searched, and changes", async () => {
  const page = await open(browser, nginx);
  await page.getByText(`of 10,000 upstreams`).waitFor();
  await page.locator(".item:visible").first().waitFor();
  await page.waitForLoadState("networkidle").catch(() => null);
  await page.evaluate(() => {
    window.long = [];
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) window.long.push(Math.round(entry.duration));
    }).observe({ type: "longtask" });
  });
  // Once to the end, as fast as frames come, while servers change.
  const scroll = async () => {
    const changes = [];
    for (let i = 0; i < 60; i++) {
      await page.mouse.wheel(0, 4000 + 500 * i);
      if (i % 10 === 0) {
        const server = `upstreams/${name(i)}/servers/10.2.0.${i}:80`;
        changes.push(nginx.api("POST", `${server}/down?reason=scrolled`));
      }
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
    }
    await Promise.all(changes);
    await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
    await page.locator(".item a", { hasText: name(COUNT - 2) }).waitFor();
    const long = await page.evaluate(() => window.long.splice(0));
    await page.evaluate(() => scrollTo(0, 0));
    return long;
  };
  // A machine that does something else may hold a task up; the page itself does so every time.
  let scrolled;
  for (let round = 0; round < 3; round++) {
    scrolled = await scroll();
    if (scrolled.length === 0) break;
  }
  assert.deepEqual(scrolled, [], "tasks over 50 ms while scrolling");

  await page.getByLabel("Search upstreams").pressSequentially("svc-0777");
  await page.getByText("10 of 10,000 upstreams").waitFor();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: name(7771) }).waitFor();
  await page.goBack();
  // What was sought is still there.
  assert.equal(await page.getByLabel("Search upstreams").inputValue(), "svc-0777");
  await page.getByLabel("Search upstreams").fill("");
  await page.getByRole("button", { name: "Not all up" }).click();
  await page.getByText("106 of 10,000 upstreams").waitFor();
  const sought = await page.evaluate(() => window.long);
  console.log(`tasks over 50 ms while searching: ${JSON.stringify(sought)}`);
  await close(page);
});
