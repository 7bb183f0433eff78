// What an operator does, each action end to end: clicked in the page, seen in the API, undone.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { close, launch, open } from "./browser.mjs";
import { Backend, Nginx, eventually } from "./nginx.mjs";

let browser, nginx, b1, b2, b3;

before(async () => {
  browser = await launch();
  [b1, b2] = [await Backend.start(), await Backend.start()];
  b3 = await Backend.start("127.0.0.2");
  nginx = await Nginx.start(`
    peerage_zone main 4m state={prefix}/main.json;
    upstream app {
        peerage main; server ${b1.address} weight=3; server ${b2.address};
        peerage_check interval=1s;
    }
    upstream web { peerage main; server ${b1.address}; server ${b3.address}; }
    upstream alone { peerage main; server ${b3.address}; }
    server {
        listen 127.0.0.1:{port};
        location /api { peerage_api write=on; }
        location /dashboard/ { peerage_dashboard; }
    }
    server { listen 127.0.0.1:{web}; location / { proxy_pass http://app; } }`);
});

after(async () => {
  await browser?.close();
  for (const backend of [b1, b2, b3]) backend?.stop();
  await nginx?.end();
});

const dialog = (page) => page.locator("dialog");
const say = (page, name) => dialog(page).getByRole("button", { name, exact: true }).click();
const toast = (page, text) => page.locator(".toast", { hasText: text });
const rowOf = (page, server) => page.locator("tbody tr", { hasText: server });

async function undo(page, text) {
  await toast(page, text).getByRole("button", { name: "Undo" }).click();
  await toast(page, `Undone: `).filter({ hasText: text }).waitFor();
}

async function more(page, server, item) {
  await rowOf(page, server).getByText("More", { exact: true }).click();
  await rowOf(page, server).getByRole("button", { name: item, exact: true }).click();
}

test("a server is drained with a reason, its requests are watched, undo sets it up", async () => {
  const page = await open(browser, nginx, { hash: "#/u/app" });
  await nginx.api("POST", `upstreams/app/servers/${b2.address}/down`);
  const held = nginx.request("/hold");
  await eventually("it is held", () => b1.held.length === 1);
  await nginx.api("POST", `upstreams/app/servers/${b2.address}/up`);

  await rowOf(page, b1.address).getByRole("button", { name: "Drain" }).click();
  // Without a reason nothing is done.
  await say(page, "Drain");
  assert.equal((await nginx.server("app", b1.address)).admin.state, "up");
  await dialog(page).getByLabel("Reason").fill("disk at 97 %");
  await dialog(page).getByLabel("Ends").selectOption("1h");
  await say(page, "Drain");
  await toast(page, "1 request in flight").waitFor();
  const drained = await nginx.server("app", b1.address);
  assert.equal(drained.admin.state, "drain");
  assert.equal(drained.admin.reason, "disk at 97 %");
  assert.ok(drained.admin.until);
  await rowOf(page, b1.address).getByText("draining").first().waitFor();
  await rowOf(page, b1.address).getByText("disk at 97 %").waitFor();
  await rowOf(page, b1.address).getByText("until").waitFor();
  b1.release();
  await held;
  await toast(page, "no request is in flight").waitFor();
  await undo(page, "no request is in flight");
  assert.equal((await nginx.server("app", b1.address)).admin.state, "up");
  await rowOf(page, b1.address).locator(".badge[data-state=up]").waitFor();
  await close(page);
});

test("down and up by the keyboard alone; what was said before comes back by undo", async () => {
  const page = await open(browser, nginx, { hash: "#/u/app" });
  await rowOf(page, b2.address).getByRole("button", { name: "Down" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.type("firmware");
  await page.keyboard.press("Enter");
  await toast(page, "is down").waitFor();
  assert.equal((await nginx.server("app", b2.address)).admin.reason, "firmware");
  await rowOf(page, b2.address).getByRole("button", { name: "Up" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  assert.equal(await dialog(page).count(), 0);
  assert.equal((await nginx.server("app", b2.address)).admin.state, "down");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await toast(page, "is up").waitFor();
  assert.equal((await nginx.server("app", b2.address)).admin.state, "up");
  await undo(page, "is up");
  const back = await nginx.server("app", b2.address);
  assert.deepEqual([back.admin.state, back.admin.reason], ["down", "firmware"]);
  await nginx.api("POST", `upstreams/app/servers/${b2.address}/up`);
  await close(page);
});

test("the last server is only taken down by one who says so twice", async () => {
  const allowed = ["status of 409"];
  const page = await open(browser, nginx, { hash: "#/u/alone", allowed });
  await rowOf(page, b3.address).getByRole("button", { name: "Down" }).click();
  await dialog(page).getByText("no server left").waitFor();
  await dialog(page).getByLabel("Reason").fill("all of it");
  await say(page, "Take down");
  await dialog(page).locator(".wrong").getByText("eligible").waitFor();
  assert.equal((await nginx.server("alone", b3.address)).admin.state, "up");
  await dialog(page).getByLabel("Do it all the same").check();
  await say(page, "Take down");
  await toast(page, "is down").waitFor();
  assert.equal((await nginx.server("alone", b3.address)).admin.state, "down");
  await undo(page, "is down");
  await close(page);
});

test("undo does not go over what somebody else has said since", async () => {
  const page = await open(browser, nginx, { hash: "#/u/web", allowed: ["status of 409"] });
  await rowOf(page, b1.address).getByRole("button", { name: "Drain" }).click();
  await dialog(page).getByLabel("Reason").fill("mine");
  await say(page, "Drain");
  await toast(page, "drains").waitFor();
  await nginx.api("POST", `upstreams/web/servers/${b1.address}/down?reason=theirs`);
  await toast(page, "drains").getByRole("button", { name: "Undo" }).click();
  await toast(page, "Not undone").waitFor();
  assert.equal((await nginx.server("web", b1.address)).admin.reason, "theirs");
  await nginx.api("POST", `upstreams/web/servers/${b1.address}/up`);
  await close(page);
});

test("a machine is taken down with all that is on it", async () => {
  const page = await open(browser, nginx, { hash: "#/u/web", allowed: ["status of 409"] });
  await rowOf(page, b3.address).getByRole("link", { name: "machine" }).click();
  await page.getByRole("button", { name: "Down machine 127.0.0.2" }).click();
  await dialog(page).getByText("It touches 2 servers").waitFor();
  await dialog(page).locator(".touches").getByText("alone").waitFor();
  await dialog(page).getByText("No server would be left that takes requests: alone").waitFor();
  await dialog(page).getByLabel("Reason").fill("new memory");
  await dialog(page).getByLabel("Do it all the same").check();
  await say(page, "Take down");
  await toast(page, "machine 127.0.0.2 is down").waitFor();
  for (const upstream of ["web", "alone"]) {
    assert.equal((await nginx.server(upstream, b3.address)).state, "down");
  }
  await page.getByText("The machine is set to down").waitFor();
  await undo(page, "machine 127.0.0.2 is down");
  await eventually("both are up", async () => {
    const states = ["web", "alone"].map(
      async (name) => (await nginx.server(name, b3.address)).state,
    );
    return (await Promise.all(states)).every((state) => state === "up");
  });
  await close(page);
});

test("weights are edited in place, shown before, set as one change, and set back", async () => {
  const page = await open(browser, nginx, { hash: "#/u/app" });
  await page.getByLabel(`Weight of ${b1.address}`).fill("5");
  await page.getByLabel(`Weight of ${b2.address}`).fill("7");
  await page.getByText("2 weights edited").waitFor();
  const before = await nginx.api("GET", "upstreams/app");
  await page.getByRole("button", { name: "Preview and apply" }).click();
  const preview = dialog(page).locator("tbody tr", { hasText: `${b1.address}/weight` });
  assert.match(await preview.innerText(), /3\s+5/);
  assert.equal((await nginx.api("GET", "upstreams/app")).revision, before.revision);
  await say(page, "Apply 2 weights");
  await toast(page, "2 weights of app set").waitFor();
  const set = await nginx.api("GET", "upstreams/app");
  assert.deepEqual(
    set.servers.map((server) => server.weight),
    [5, 7],
  );
  assert.ok(set.revision > before.revision);
  const { events } = await nginx.api("GET", "events?since=0");
  const [one, two] = events.slice(-2);
  assert.deepEqual([one.kind, two.kind, one.revision], ["server", "server", two.revision]);
  await undo(page, "2 weights of app set");
  const back = await nginx.api("GET", "upstreams/app");
  assert.deepEqual(
    back.servers.map((server) => server.weight),
    [3, 1],
  );
  // What is no weight is marked, and not to be applied.
  await page.getByLabel(`Weight of ${b1.address}`).fill("70000");
  assert.equal(await page.locator("input.weight[aria-invalid]").count(), 1);
  await close(page);
});

test("of two browsers in conflict the second is shown what the first one did", async () => {
  const allowed = ["status of 412"];
  const [first, second] = [
    await open(browser, nginx, { hash: "#/u/app" }),
    await open(browser, nginx, { hash: "#/u/app", allowed }),
  ];
  for (const [page, weight] of [
    [first, "10"],
    [second, "20"],
  ]) {
    await page.getByLabel(`Weight of ${b1.address}`).fill(weight);
  }
  // The second one has its preview already when the first one applies.
  await second.getByRole("button", { name: "Preview and apply" }).click();
  await dialog(second).getByRole("button", { name: "Apply 1 weight" }).waitFor();
  await first.getByRole("button", { name: "Preview and apply" }).click();
  await say(first, "Apply 1 weight");
  await toast(first, "1 weight of app set").waitFor();
  await say(second, "Apply 1 weight");
  await dialog(second).getByText("Somebody else has changed this upstream").waitFor();
  const conflict = dialog(second).locator("tbody tr", { hasText: b1.address });
  assert.match(await conflict.innerText(), /3\s+10\s+20/);
  assert.equal((await nginx.server("app", b1.address)).weight, 10);
  await say(second, "Go on from what is there now");
  await second.getByRole("button", { name: "Preview and apply" }).click();
  await say(second, "Apply 1 weight");
  await toast(second, "1 weight of app set").waitFor();
  assert.equal((await nginx.server("app", b1.address)).weight, 20);
  // The first one sees it, without a reload.
  await eventually("it is shown", async () => {
    return (await first.getByLabel(`Weight of ${b1.address}`).inputValue()) === "20";
  });
  await nginx.api("PATCH", `upstreams/app/servers/${b1.address}`, { weight: 3 });
  await close(first);
  await close(second);
});

test("a server is added, edited, removed, and each of it undone", async () => {
  const page = await open(browser, nginx, { hash: "#/u/web", allowed: ["status of 409"] });
  const address = "127.0.0.3:8080";
  await page.getByRole("button", { name: "Add a server" }).click();
  await dialog(page).getByLabel("Address").fill(b1.address);
  await say(page, "Add");
  await dialog(page).locator(".wrong").waitFor();
  await dialog(page).getByLabel("Address").fill(address);
  await dialog(page).getByLabel("Weight").fill("4");
  await dialog(page).getByLabel("Labels").fill("rack:r7\nspare");
  await say(page, "Add");
  await toast(page, `${address} added`).waitFor();
  const added = await nginx.server("web", address);
  assert.deepEqual([added.weight, added.labels], [4, { rack: "r7", spare: "" }]);

  await more(page, address, "Edit");
  await dialog(page).getByLabel("Labels").fill("rack:r8");
  await dialog(page).getByLabel("max_conns").fill("9");
  await say(page, "Set");
  await toast(page, "of web set").waitFor();
  const edited = await nginx.server("web", address);
  assert.deepEqual([edited.max_conns, edited.labels, edited.weight], [9, { rack: "r8" }, 4]);
  await undo(page, "of web set");
  assert.deepEqual((await nginx.server("web", address)).labels, { rack: "r7", spare: "" });

  await more(page, address, "Remove");
  await say(page, "Remove");
  await toast(page, `${address} removed`).waitFor();
  await rowOf(page, address).waitFor({ state: "detached" });
  await undo(page, `${address} removed`);
  const back = await nginx.server("web", address);
  assert.deepEqual([back.weight, back.labels], [4, { rack: "r7", spare: "" }]);
  await nginx.api("DELETE", `upstreams/web/servers/${address}`);
  await close(page);
});

test("an upstream is created, removed, and comes back", async () => {
  const page = await open(browser, nginx, { allowed: ["status of 404"] });
  await page.getByRole("button", { name: "Create an upstream" }).click();
  await dialog(page).getByLabel("Name").fill("blue");
  await dialog(page).getByLabel("Method").selectOption("least_conn");
  await dialog(page)
    .getByLabel("Servers")
    .fill(`${b1.address} weight=2\nserver ${b2.address} backup;`);
  await say(page, "Create");
  await toast(page, "upstream blue created").waitFor();
  const blue = await nginx.api("GET", "upstreams/blue");
  assert.equal(blue.method, "least_conn");
  assert.deepEqual(
    blue.servers.map((server) => [server.weight, server.backup]),
    [
      [2, false],
      [1, true],
    ],
  );
  await page.getByRole("heading", { name: "blue" }).waitFor();
  await page.getByRole("button", { name: "Remove the upstream" }).click();
  await dialog(page).locator("tbody tr", { hasText: "blue" }).waitFor();
  await say(page, "Remove");
  await toast(page, "upstream blue removed").waitFor();
  await page.getByRole("heading", { name: "Upstreams" }).waitFor();
  assert.ok(!("blue" in (await nginx.api("GET", "upstreams"))));
  await undo(page, "upstream blue removed");
  const back = await nginx.api("GET", "upstreams/blue");
  assert.deepEqual([back.method, back.digest], ["least_conn", blue.digest]);
  await page.getByRole("link", { name: "blue" }).waitFor();
  await nginx.api("DELETE", "upstreams/blue");
  await close(page);
});

test("a server is probed, and called unhealthy and healthy", async () => {
  const page = await open(browser, nginx, { hash: "#/u/app", allowed: ["status of 409"] });
  await more(page, b1.address, "Check now");
  await toast(page, "passed").waitFor();
  b2.status = 500;
  await more(page, b2.address, "Check now");
  await toast(page, "failed, status 500").waitFor();
  b2.status = 200;
  await more(page, b1.address, "Call it unhealthy");
  await dialog(page).getByLabel("Reason").fill("replication lags");
  await say(page, "Call it unhealthy");
  await toast(page, "is called unhealthy").waitFor();
  assert.equal((await nginx.server("app", b1.address)).why.code, "external");
  await more(page, b1.address, "Health");
  await dialog(page).getByText("Outside checker").waitFor();
  await say(page, "Close");
  await undo(page, "is called unhealthy");
  assert.notEqual((await nginx.server("app", b1.address)).why?.code, "external");
  await close(page);
});

test("the view of events has who did what, and is searched", async () => {
  const page = await open(browser, nginx, { hash: "#/events" });
  await rowOf(page, "firmware").first().waitFor();
  await page.getByLabel("Search events").fill("new memory");
  await rowOf(page, "127.0.0.2").first().waitFor();
  await eventually("only they", async () => (await rowOf(page, "firmware").count()) === 0);
  await page.getByLabel("Search events").fill("");
  await nginx.api("POST", `upstreams/web/servers/${b1.address}/drain?reason=just+now`);
  await rowOf(page, "just now").first().waitFor();
  await nginx.api("POST", `upstreams/web/servers/${b1.address}/up`);
  await close(page);
});
