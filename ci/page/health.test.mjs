// What nginx finds out by itself: checks, ejections, and sources that name no servers any more.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { close, launch, open } from "./browser.mjs";
import { Consul } from "./consul.mjs";
import { Backend, Nginx, eventually } from "./nginx.mjs";

const WEB = ["127.0.0.5:80", "127.0.0.6:80", "127.0.0.7:80"];
let browser, nginx, consul, backends;

before(async () => {
  browser = await launch();
  backends = await Promise.all([1, 2].map((n) => Backend.start(`127.0.0.${n}`)));
  consul = await Consul.start();
  consul.set("web", WEB);
  const [b1, b2] = backends.map((backend) => backend.address);
  nginx = await Nginx.start(`
    peerage_zone main 1m;
    peerage_consul dc1 server=${consul.url};
    upstream web { peerage main; peerage_service web consul=dc1; }
    upstream app {
        peerage main; peerage_outlier consecutive_errors=3 max_percent=50;
        server ${b1}; server ${b2};
    }
    upstream checked { peerage main; peerage_check interval=1s fails=2; server ${b1}; server ${b2}; }
    server {
        listen 127.0.0.1:{port};
        location /api { peerage_api write=on; }
        location /dashboard/ { peerage_dashboard; }
    }
    server { listen 127.0.0.1:{web}; location / { proxy_pass http://app; } }`);
});

after(async () => {
  await browser?.close();
  for (const backend of backends ?? []) backend.stop();
  await nginx?.end();
  consul?.stop();
});

const rowOf = (page, server) => page.locator("main tbody tr", { hasText: server });
const dialog = (page) => page.locator("dialog");

async function health(page, server) {
  await rowOf(page, server).getByText("More", { exact: true }).click();
  await rowOf(page, server).getByRole("button", { name: "Health", exact: true }).click();
  await dialog(page).locator("dl").waitFor();
  const said = await dialog(page).locator("section").innerText();
  await dialog(page).getByRole("button", { name: "Close" }).click();
  return said.replaceAll("\n", " ");
}

test("a server whose requests err is ejected, and it is said why and for how long", async () => {
  const page = await open(browser, nginx);
  const [, b2] = backends;
  b2.status = 503;
  await eventually("an ejection", async () => {
    await nginx.request();
    return (await nginx.server("app", b2.address)).why?.code === "ejected";
  });
  const trouble = page.locator("main tbody tr", { hasText: "ejected as an outlier" });
  await trouble.getByText("unavail").waitFor();
  await trouble.getByText("1 of 2 servers left").waitFor();
  await trouble.getByRole("link", { name: "app" }).click();
  const said = await health(page, b2.address);
  assert.match(said, /Errors of requests .* in a row/);
  assert.match(said, /Ejected until \d\d:\d\d:\d\d/);
  b2.status = 200;
  for (const verb of ["down", "up"]) {
    await nginx.api("POST", `upstreams/app/servers/${b2.address}/${verb}`);
  }
  await rowOf(page, b2.address).locator(".badge[data-state=up]").waitFor();
  assert.match(await health(page, b2.address), /Ejected no/);
  await close(page);
});

test("a check that fails is shown with its reason, and what it counted", async () => {
  const page = await open(browser, nginx, { hash: "#/u/checked" });
  const [b1] = backends;
  await rowOf(page, b1.address).locator(".badge[data-state=up]").waitFor();
  b1.status = 500;
  await rowOf(page, b1.address).getByText("its check failed: status 500").waitFor();
  await rowOf(page, b1.address).getByText("since").waitFor();
  const said = await health(page, b1.address);
  assert.match(said, /Check unhealthy/);
  assert.match(said, /Became unhealthy 1 time\b/);
  assert.match(said, /Last failed \d\d:\d\d:\d\d, \d+ in a row/);
  assert.match(said, /Last failure status 500/);
  b1.status = 200;
  await rowOf(page, b1.address).locator(".badge[data-state=up]").waitFor();
  await close(page);
});

test("what a source holds is said on every view, discarded, and applied", async () => {
  const page = await open(browser, nginx);
  const banner = page.locator("#banners", { hasText: "consul/dc1:web" });
  const decide = (name) => page.locator("main").getByRole("button", { name, exact: true });
  const servers = async () => (await nginx.api("GET", "upstreams/web")).servers;
  await eventually("three servers", async () => (await servers()).length === 3);
  // All of it is gone at once: a source that is broken itself says so.
  consul.set("web", []);
  await banner.getByText("3 servers are held").waitFor();
  await banner.getByRole("link", { name: "Sources" }).click();
  await rowOf(page, "consul/dc1:web").getByText("3 servers").waitFor();

  await decide("Discard").click();
  await dialog(page).getByRole("button", { name: "Cancel" }).click();
  const why = async () => (await nginx.api("GET", "sources/consul/dc1:web")).held?.why.code;
  assert.equal(await why(), "empty");
  await decide("Discard").click();
  await dialog(page).getByRole("button", { name: "Discard", exact: true }).click();
  await page.locator(".toast", { hasText: "discarded" }).waitFor();
  await decide("Discard").waitFor({ state: "detached" });
  assert.equal(await why(), "discarded");
  // It is decided, and stands there quietly.
  await banner.waitFor({ state: "detached" });
  assert.deepEqual(
    (await servers()).map((server) => server.state),
    ["up", "up", "up"],
  );

  consul.set("web", WEB);
  await eventually("nothing is held", async () => (await why()) === undefined);
  consul.set("web", []);
  await eventually("it is held again", async () => (await why()) === "empty");
  await decide("Apply").click();
  await dialog(page).getByRole("button", { name: "Apply", exact: true }).click();
  await page.locator(".toast", { hasText: "applied" }).waitFor();
  await eventually("they go", async () => {
    return (await servers()).every((server) => server.state === "draining");
  });
  await decide("Apply").waitFor({ state: "detached" });
  await close(page);
});

test("a source that does not answer is said to, and why", async () => {
  const page = await open(browser, nginx, { hash: "#/sources" });
  await rowOf(page, "consul/dc1:web").getByText("up", { exact: true }).waitFor();
  consul.stop();
  await page.locator("#banners").getByText("consul/dc1:web does not answer").waitFor();
  await rowOf(page, "consul/dc1:web").getByText("stale").waitFor();
  await rowOf(page, "consul/dc1:web").getByText("connect").waitFor();
  await close(page);
});
