// Routes: which key, as that of a tenant, is served by which upstream.

import { entries } from "./api.js";
import { attribute, button, cell, field, h, keyed, row, table, text, time, to } from "./dom.js";
import { servesText } from "./health.js";
import { moveRoute, resumeRoute, suspendRoute } from "./moves.js";

const PAGE = 100;
// Routes of one burst of events that are read one by one; beyond, all that is shown is.
const FEW = 10;
const BURST = 150;

export class RoutesView {
  title = "Routes";
  // By key, as they were read last.
  #routes = new Map();
  #turn = null;
  #more = false;
  #touched = new Set();

  constructor(app, upstream) {
    this.app = app;
    const sought = { type: "search", autocomplete: "off", spellcheck: "false" };
    this.key = h("input", sought);
    this.upstream = h("input", { ...sought, value: upstream ?? "" });
    this.note = h("p", { class: "quiet", role: "status" });
    const { root, body } = table("Routes", [
      ["Key"],
      ["Upstream"],
      ["Status"],
      ["Reason"],
      ["Until"],
      ["", "actions"],
    ]);
    this.table = root;
    this.body = body;
    this.more = button("More", () => this.#read([...this.#routes.keys()].at(-1)));
    const seek = h(
      "form",
      {
        class: "tools",
        role: "search",
        onsubmit: (event) => {
          event.preventDefault();
          this.read();
        },
      },
      field("Key, or how it begins", this.key),
      field("Upstream", this.upstream),
      h("button", { type: "submit" }, "Search"),
    );
    this.root = h("div", {}, h("h2", {}, "Routes"), seek, this.note, root, this.more);
  }

  start() {
    this.read();
  }

  stop() {
    this.#turn = null;
    this.stopped = true;
  }

  read() {
    return this.#read(null);
  }

  // A page of what is sought. Keys that begin alike stand together, behind the one that is that
  // beginning.
  async #read(after) {
    const turn = (this.#turn = {});
    const begin = this.key.value.trim();
    const upstream = this.upstream.value.trim() || null;
    text(this.note, "Reading …");
    let found = [];
    let said = "";
    let more = false;
    try {
      const query = { limit: PAGE, after: after ?? (begin || null), upstream };
      const [page, one] = await Promise.all([
        this.app.api.get(["routes"], query),
        begin && after === null ? this.one(begin) : null,
      ]);
      const all = entries(page);
      const alike = all.filter(([key]) => key.startsWith(begin));
      more = alike.length === PAGE;
      if (one && (!upstream || one.upstream === upstream)) found.push([begin, one]);
      found.push(...alike);
    } catch (problem) {
      said = problem.message;
    }
    if (turn !== this.#turn) return;
    // What was there stays until there is something else.
    if (after === null && !said) this.#routes.clear();
    for (const [key, route] of found) this.#routes.set(key, { ...route, key });
    this.#more = more;
    if (this.#routes.size === 0) said ||= begin || upstream ? "There is no such route." : NONE;
    text(this.note, said);
    this.draw();
  }

  // A route, or null.
  async one(key) {
    try {
      return await this.app.api.get(["routes", key]);
    } catch (problem) {
      if (problem.status === 404) return null;
      throw problem;
    }
  }

  // What was changed of it is shown, whether by this page or another one.
  event({ kind, route }) {
    if (kind !== "route") return;
    if (this.#touched.size === 0) setTimeout(() => this.#again(), BURST);
    this.#touched.add(route);
  }

  async #again() {
    const keys = [...this.#touched];
    this.#touched.clear();
    if (this.stopped) return;
    // What has come since is found by a search, what is shown is kept as it is.
    const shown = keys.filter((key) => this.#routes.has(key));
    if (this.#routes.size === 0 || shown.length > FEW) return this.read();
    await Promise.all(shown.map((key) => this.reread(key)));
  }

  async reread(key) {
    const route = await this.one(key).catch(() => undefined);
    if (route === undefined) return;
    if (route) this.#routes.set(key, { ...route, key });
    else this.#routes.delete(key);
    this.draw();
  }

  draw() {
    this.more.hidden = !this.#more;
    this.table.hidden = this.#routes.size === 0;
    keyed(
      this.body,
      [...this.#routes.values()],
      (route) => route.key,
      (route) => this.#make(route),
      (node, route) => this.#update(node, route),
    );
  }

  #make(route) {
    const node = row();
    const parts = (node.parts = {
      upstream: h("a"),
      left: h("div", { class: "quiet" }),
      status: h("span", { class: "badge" }),
      reason: h("span"),
      until: h("span"),
      labels: h("div", { class: "labels" }),
    });
    const act = (label, what) =>
      button(label, () => what(this.app, node.route, () => this.reread(route.key)), {
        "aria-label": `${label} ${route.key}`,
      });
    parts.suspend = act("Suspend", suspendRoute);
    parts.resume = act("Resume", resumeRoute);
    const acts =
      this.app.mode === "on" ? [act("Move", moveRoute), parts.suspend, parts.resume] : [];
    node.append(
      cell("Key", "server long", h("b", {}, route.key), parts.labels),
      cell("Upstream", "long", parts.upstream, parts.left),
      cell("Status", "", parts.status),
      cell("Reason", "long", parts.reason),
      cell("Until", "", parts.until),
      cell("", "actions", h("div", { class: "buttons" }, acts)),
    );
    return node;
  }

  #update(node, route) {
    node.route = route;
    const { parts } = node;
    const active = route.status === "active";
    text(parts.upstream, route.upstream);
    attribute(parts.upstream, "href", to("u", route.upstream));
    const left = servesText(this.app.store, route.upstream);
    text(parts.left, left.said);
    parts.left.classList.toggle("wrong", left.bad);
    text(parts.status, route.status);
    attribute(parts.status, "data-state", active ? "up" : "down");
    text(parts.reason, route.reason);
    const labels = Object.entries(route.labels ?? {}).map(([k, v]) => (v ? `${k}:${v}` : k));
    if (route.origin !== "api") labels.unshift(`from ${route.origin}`);
    text(parts.labels, labels.join(" · "));
    parts.suspend.hidden = !active;
    parts.resume.hidden = active;
    if (node.until === route.until) return;
    node.until = route.until;
    parts.until.replaceChildren(time(route.until));
  }
}

const NONE = "There is no route.";
