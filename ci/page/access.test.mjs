// Who may do what: the page shows what the API allows, and finds it out without a write.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { close, launch, open } from "./browser.mjs";
import { Backend, Nginx, certificate } from "./nginx.mjs";

let browser, nginx;

before(async () => {
  browser = await launch();
  nginx = await Nginx.start(`
    log_format said "$request_method $request_uri $status";
    peerage_zone main 1m state={prefix}/main.json;
    peerage_zone other 1m;
    upstream app { peerage main; server 127.0.0.1:1; server 127.0.0.2:1; }
    upstream elsewhere { peerage other; server 127.0.0.1:1; }
    server {
        listen 127.0.0.1:{port};
        access_log {prefix}/said.log said;
        location /api { peerage_api write=on zone=main; }
        location /read/api { peerage_api zone=main; }
        location /read/dashboard/ { peerage_dashboard api=/read/api; }
        location /operate/api { peerage_api zone=main write=operate; }
        location /operate/dashboard/ { peerage_dashboard api=../api; }
        location /fenced/api { peerage_api zone=main write=on; limit_except GET { deny all; } }
        location /fenced/dashboard/ { peerage_dashboard api=/fenced/api; }
        location /all/api { peerage_api write=on; }
        location /all/dashboard/ { peerage_dashboard api=/all/api; }
        location /login/ {
            auth_basic closed; auth_basic_user_file {prefix}/users;
            location /login/api { peerage_api zone=main write=on; }
            location /login/dashboard { peerage_dashboard api=../api; }
        }
        location /gone/dashboard/ { peerage_dashboard api=/none; }
        location /dashboard/ { peerage_dashboard; }
    }`);
  await writeFile(join(nginx.prefix, "users"), "anna:{PLAIN}secret\n");
});

after(async () => {
  await browser?.close();
  await nginx?.end();
});

async function at(path, options = {}) {
  const page = await open(browser, nginx, {
    allowed: ["status of 403", "status of 405"],
    ...options,
    hash: "#/none",
  });
  await page.goto(`${nginx.url}${path}`);
  return page;
}

const buttons = (page) => page.locator("main button:visible, main summary:visible").allInnerTexts();

test("where nothing may be written nothing offers to, and no write was tried", async () => {
  for (const where of ["read", "fenced"]) {
    const before = await nginx.api("GET", "zones/main");
    const page = await at(`/${where}/dashboard/#/u/app`);
    await page.locator("#mode", { hasText: "read only" }).waitFor();
    await page.locator("tbody tr").first().waitFor();
    assert.deepEqual(await buttons(page), ["More", "More"], where);
    assert.equal(await page.locator("main input").count(), 0);
    await page.goto(`${nginx.url}/${where}/dashboard/#/`);
    await page.locator(".item").first().waitFor();
    assert.ok(!(await buttons(page)).some((said) => /Create|Up|Down/.test(said)));
    assert.equal((await nginx.api("GET", "zones/main")).seq, before.seq);
    await close(page);
  }
  const said = await readFile(join(nginx.prefix, "said.log"), "utf8");
  const written = said.split("\n").filter((line) => /^(POST|PUT|PATCH|DELETE)/.test(line));
  assert.ok(
    written.length > 0 && written.every((line) => line.includes("dry_run=1")),
    written.join("\n"),
  );
});

test("who may operate is offered that, and no more", async () => {
  const page = await at("/operate/dashboard/#/u/app");
  await page.locator("#mode", { hasText: "operate" }).waitFor();
  const row = page.locator("tbody tr", { hasText: "127.0.0.1:1" });
  await row.getByText("More", { exact: true }).click();
  const offered = await buttons(page);
  for (const said of ["Up", "Drain", "Down", "Check now"]) assert.ok(offered.includes(said), said);
  for (const said of ["Edit", "Remove", "Add a server"]) assert.ok(!offered.includes(said), said);
  await page.getByLabel("Weight of 127.0.0.1:1").fill("6");
  await page.getByRole("button", { name: "Preview and apply" }).click();
  await page.locator("dialog").getByRole("button", { name: "Apply 1 weight" }).click();
  await page.locator(".toast", { hasText: "1 weight of app set" }).waitFor();
  assert.equal((await nginx.server("app", "127.0.0.1:1")).weight, 6);
  await close(page);
});

test("a login of the browser is that of the page, and stands beside what is done", async () => {
  for (const file of ["", "app.js"]) {
    assert.equal((await fetch(`${nginx.url}/login/dashboard/${file}`)).status, 401);
  }
  const page = await at("/login/dashboard#/u/app", {
    httpCredentials: { username: "anna", password: "secret", origin: nginx.url },
  });
  // The slash that was left out is there.
  assert.equal(new URL(page.url()).pathname, "/login/dashboard/");
  const row = page.locator("tbody tr", { hasText: "127.0.0.2:1" });
  await row.getByRole("button", { name: "Drain" }).click();
  await page.locator("dialog").getByLabel("Reason").fill("known by name");
  await page.locator("dialog").getByRole("button", { name: "Drain", exact: true }).click();
  await row.locator("td[data-heading=Why]").getByText("by anna: known by name").waitFor();
  assert.equal((await nginx.server("app", "127.0.0.2:1")).admin.by, "anna");
  await nginx.api("POST", "upstreams/app/servers/127.0.0.2:1/up");
  await close(page);
});

test("the example shows to staff, and acts for operators", async () => {
  const backend = await Backend.start();
  const example = (await readFile(new URL("../../examples/page.conf", import.meta.url), "utf8"))
    .replaceAll("/var/lib/nginx/peerage/", "{prefix}/")
    .replaceAll("/etc/nginx/", "{prefix}/")
    .replace("listen 8443", "listen 127.0.0.1:{port}")
    .replace("listen 80", "listen 127.0.0.1:{web}")
    .replace("10.0.0.1:8080", backend.address)
    .replace("10.0.0.2:8080", "127.0.0.1:1 down")
    .replace("10.1.0.0/16", "127.0.0.1");
  const lb = await Nginx.start(example, async (prefix) => {
    await writeFile(join(prefix, "staff"), "anna:{PLAIN}secret\n");
    await certificate(join(prefix, "lb"));
  });
  lb.url = lb.url.replace("http:", "https:");
  try {
    const staff = (path) =>
      open(browser, lb, {
        path,
        hash: "#/u/app",
        allowed: ["status of 403", "status of 405"],
        ignoreHTTPSErrors: true,
        httpCredentials: { username: "anna", password: "secret", origin: lb.url },
      });
    const sees = await staff("/dashboard/");
    await sees.locator("#mode", { hasText: "read only" }).waitFor();
    const seen = sees.locator("tbody tr", { hasText: backend.address });
    await seen.waitFor();
    assert.deepEqual(await buttons(sees), ["More", "More"]);

    const acts = await staff("/operate/dashboard/");
    const row = acts.locator("tbody tr", { hasText: backend.address });
    await row.getByRole("button", { name: "Drain" }).click();
    await acts.locator("dialog").getByLabel("Reason").fill("night shift");
    await acts.locator("dialog").getByLabel("Do it all the same").check();
    await acts.locator("dialog").getByRole("button", { name: "Drain", exact: true }).click();
    await acts.locator(".toast", { hasText: "drains" }).waitFor();
    // By whom is seen by everybody.
    await seen.getByText("by anna: night shift").waitFor();
    acts.wrongs = acts.wrongs.filter((said) => !said.includes("status of 409"));
    await close(acts);
    await close(sees);
  } finally {
    backend.stop();
    await lb.end();
  }
});

test("of several zones one is shown, and chosen", async () => {
  const page = await at("/all/dashboard/");
  await page.locator(".item", { hasText: "app" }).waitFor();
  await page.getByLabel("Zone", { exact: true }).selectOption("other");
  await page.locator(".item", { hasText: "elsewhere" }).waitFor();
  assert.equal(await page.locator(".item:not([hidden])").count(), 1);
  await page.locator("#live[data-live=live]").waitFor();
  await page.locator(".item a").first().click();
  await page.locator("tbody tr").getByRole("button", { name: "Drain" }).click();
  await page.locator("dialog").getByLabel("Reason").fill("over there");
  await page.locator("dialog").getByLabel("Do it all the same").check();
  await page.locator("dialog").getByRole("button", { name: "Drain", exact: true }).click();
  await page.locator(".toast", { hasText: "drains" }).waitFor();
  page.wrongs = page.wrongs.filter((said) => !said.includes("status of 409"));
  await close(page);
});

test("an API that is not there is said to be", async () => {
  const page = await at("/gone/dashboard/", { allowed: ["status of 404"] });
  await page.locator("#banners").getByText("The API is not there").waitFor();
  await close(page);
});

test("behind a proxy under another path it finds its API", async () => {
  const front = await Nginx.start(`
    server {
        listen 127.0.0.1:{port};
        location /lb/7/ {
            proxy_pass ${nginx.url}/operate/;
            proxy_buffering off;
            proxy_set_header Host $http_host;
        }
    }`);
  try {
    const page = await open(browser, front, {
      hash: "#/none",
      allowed: ["status of 404", "status of 403"],
    });
    await page.goto(`${front.url}/lb/7/dashboard/`);
    await page.locator(".item", { hasText: "app" }).waitFor();
    await page.locator("#live[data-live=live]").waitFor();
    await close(page);
  } finally {
    await front.end();
  }
});
