// The zone itself: its room, its state file, who works on it.

import { bytes, cell, h, number, plural, row, table, time, to } from "./dom.js";

export class ZoneView {
  title = "Zone";

  constructor(app) {
    this.app = app;
    this.content = h("div");
    this.root = h("div", {}, h("h2", {}, `Zone ${app.store.zoneName ?? ""}`), this.content);
  }

  start() {
    this.app.store.read();
    this.draw();
  }

  stop() {}

  draw() {
    const { zone } = this.app.store;
    const key = JSON.stringify(zone);
    if (this.key === key) return;
    this.key = key;
    if (zone) this.content.replaceChildren(...sections(zone, this.app.root));
  }
}

function sections(zone, root) {
  const { total, used, free, reserved } = zone.bytes;
  const meter = h("meter", {
    min: 0,
    max: total,
    high: total * 0.8,
    value: used,
    "aria-label": "Used",
  });
  const parts = [
    section("Room", [
      ["Used", meter, ` ${bytes(used)} of ${bytes(total)} (${Math.round((100 * used) / total)} %)`],
      ["Free", `${bytes(free)}, of which ${bytes(reserved)} are kept for up, down, drain`],
      ["Fit still", `about ${number(zone.fits)} servers`],
      ["Refused for lack of room", number(zone.no_room)],
      [
        "Holds",
        ["upstream", "server", "route"].map((it) => plural(zone[`${it}s`] ?? 0, it)).join(", "),
      ],
      ["Revision", number(zone.revision)],
    ]),
    section("State file", state(zone.state)),
    section("nginx", [
      ["Version", root ? `${root.nginx}, peerage ${root.version} (${root.build})` : "–"],
      ["Worker processes", zone.workers.map((worker) => worker.pid).join(", ")],
    ]),
  ];
  if (zone.orphans.length) {
    const { root: shown, body } = table("Orphans", [["Upstream"], ["Since"]]);
    for (const { upstream, since } of zone.orphans) {
      const link = h("a", { href: to("u", upstream) }, upstream);
      body.append(row(cell("Upstream", "", link), cell("Since", "", time(since))));
    }
    parts.push(h("section", {}, h("h3", {}, "Upstreams whose block is gone"), shown));
  }
  if (zone.conflicts.length) {
    const headings = ["Upstream", "Server", "Field", "File (holds)", "Run time (replaced)"];
    const { root: shown, body } = table(
      "Conflicts",
      headings.map((heading) => [heading]),
    );
    const said = (value) => (typeof value === "string" ? value : JSON.stringify(value));
    for (const { upstream, server, field, file, runtime } of zone.conflicts) {
      const values = [upstream, server ?? "", field, said(file), said(runtime)];
      body.append(row(...values.map((value, i) => cell(headings[i], "", value))));
    }
    parts.push(h("section", {}, h("h3", {}, "Changed in the file and at run time"), shown));
  }
  return parts;
}

function state(state) {
  if (!state) return [["File", "none: what is changed ends with nginx"]];
  return [
    ["File", state.file],
    ["Role", `${state.role}, written by process ${state.writer ?? "–"}`],
    ["On the disk", `revision ${number(state.durable_revision)}, ${number(state.lag)} behind`],
    ["Failed writes", number(state.errors)],
    ["Error", state.error ? [state.error, " since ", time(state.error_time)] : "none"],
  ];
}

function section(title, facts) {
  const rows = facts.map(([name, ...said]) => [h("dt", {}, name), h("dd", {}, said.flat())]);
  return h("section", {}, h("h3", {}, title), h("dl", {}, rows));
}
