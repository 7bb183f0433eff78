// One upstream: its servers as they are from second to second, and what can be done with them.

import * as actions from "./actions.js";
import { entries } from "./api.js";
import { Chart, Rates } from "./chart.js";
import { attribute, button, bytes, cell, h, hidden, keyed, machine, number } from "./dom.js";
import { row, table, text, time, to } from "./dom.js";
import { addServer, editServer, removeServer, removeUpstream } from "./forms.js";
import { badge, bar, eligibleText, setBadge, setBar, since, summary, whyText } from "./health.js";
import { Weights } from "./weights.js";

const EVERY = 2000;
// Rows that are shown at first.
const ROWS = 100;
// Keys of routes that are named.
const KEYS = 5;
// Moves of routes within so long are one, ms.
const ROUTED = 500;

const HEADINGS = [
  ["State"],
  ["Server"],
  ["Why"],
  ["Weight", "number"],
  ["In flight", "number"],
  ["Requests/s", "number"],
  ["Errors/s", "number"],
  ["Time, ms", "number"],
  ["", "actions"],
];

export class UpstreamView {
  #timer = null;
  #routing = null;
  #rows = new Map();
  #shown = ROWS;
  #stopped = false;
  upstream = null;

  constructor(app, name) {
    this.app = app;
    this.name = name;
    this.title = `Upstream ${name}`;
    this.weights = new Weights(app, name);
    this.weights.shown = () => this.draw();
    this.facts = h("p", { class: "facts" });
    this.bar = bar();
    this.routes = h("p", { class: "facts", hidden: true });
    this.note = h("p", { class: "quiet" }, "Reading …");
    const writes = app.mode === "on";
    const tools = writes
      ? [
          button("Add a server", () => addServer(app, name)),
          button("Remove the upstream", () => this.upstream && removeUpstream(app, this.upstream)),
        ]
      : [];
    const { root, body } = table(`Servers of ${name}`, HEADINGS);
    this.table = root;
    this.body = body;
    this.all = button("", () => {
      this.#shown += 10 * ROWS;
      this.draw();
    });
    this.root = h(
      "div",
      {},
      h(
        "div",
        { class: "head" },
        h("h2", {}, name),
        this.bar,
        h("div", { class: "buttons" }, tools),
      ),
      this.facts,
      this.routes,
      this.note,
      this.weights.root,
      root,
      this.all,
    );
  }

  start() {
    this.read();
    this.#readRoutes();
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  // Something changed: it is read now, not in a while.
  touched(names) {
    if (names.includes(this.name)) this.read();
  }

  async read() {
    clearTimeout(this.#timer);
    const turn = (this.turn = {});
    try {
      const upstream = await this.app.api.get(["upstreams", this.name]);
      // A later reading has begun: it knows better.
      if (turn !== this.turn || this.#stopped) return;
      this.upstream = upstream;
      this.#sample(upstream);
      this.app.store.put(upstream);
      text(this.note, "");
      this.draw();
    } catch (problem) {
      if (turn !== this.turn || this.#stopped) return;
      if (problem.status === 404) {
        this.upstream = null;
        text(this.note, `There is no upstream ${this.name}.`);
      } else text(this.note, `Not read: ${problem.message}. What is shown may be old.`);
      this.draw();
    }
    this.note.hidden = this.note.textContent === "";
    this.#timer = setTimeout(() => this.read(), EVERY);
  }

  // A route may come to lead here, or elsewhere.
  event({ kind, upstream, from }) {
    const said = `${upstream ?? ""} ${from ?? ""}`.split(" ");
    if (kind !== "route" || !said.includes(this.name)) return;
    // However many are moved at once.
    this.#routing ??= setTimeout(() => this.#readRoutes(), ROUTED);
  }

  // The keys that lead here, the first of them by name.
  async #readRoutes() {
    this.#routing = null;
    if (!this.app.routes || this.#stopped) return;
    let keys;
    try {
      const page = await this.app.api.get(["routes"], { upstream: this.name, limit: KEYS + 1 });
      keys = entries(page);
    } catch {
      // The view is whole without them.
      return;
    }
    this.routes.hidden = keys.length === 0;
    const named = keys.slice(0, KEYS).map(([key, { status }]) => {
      return status === "active" ? key : `${key} (${status})`;
    });
    const said = named.join(", ") + (keys.length > KEYS ? ", and more" : "");
    const all = h("a", { href: to("routes", this.name) }, "Routes");
    this.routes.replaceChildren(all, ` that lead here: ${said}`);
  }

  #sample({ servers }) {
    const now = performance.now();
    const there = new Set(servers.map((server) => server.id));
    for (const id of this.#rows.keys()) if (!there.has(id)) this.#rows.delete(id);
    for (const server of servers) {
      let state = this.#rows.get(server.id);
      if (!state) {
        state = { rates: new Rates(), charts: CHARTS.map(() => new Chart()) };
        this.#rows.set(server.id, state);
      }
      const { requests, errors } = state.rates.read(server, now);
      const counted = server.counters ?? {};
      // Left out while it is under a millisecond.
      const took = counted.response_time ?? (counted.requests ? 0 : null);
      state.values = [server.active, requests, errors, took];
      state.charts.forEach((chart, i) => chart.push(state.values[i]));
    }
  }

  draw() {
    const upstream = this.upstream;
    this.table.hidden = !upstream?.servers.length;
    if (!upstream) {
      this.all.hidden = true;
      return;
    }
    setBar(this.bar, upstream.counts);
    const { method, hash_key, check, origin } = upstream;
    const facts = [
      `${eligibleText(upstream)} take requests (${summary(upstream.counts)})`,
      `${method}${hash_key ? ` by ${hash_key}` : ""}`,
      check ? `checked: ${check.type ?? "http"} every ${check.interval}` : "not checked",
      `made by ${origin === "config" ? "the configuration" : "the API"}`,
    ];
    text(this.facts, facts.join(" · "));
    const servers = upstream.servers.slice(0, this.#shown);
    this.all.hidden = servers.length === upstream.servers.length;
    text(this.all, `Show more of the ${upstream.servers.length} servers`);
    keyed(
      this.body,
      servers,
      (server) => server.id,
      (server) => this.#make(server),
      (node, server) => this.#update(node, server),
    );
  }

  #make(server) {
    const { app, name } = this;
    const node = row();
    // The server as it was read last, for what is done from here.
    node.server = server;
    const parts = (node.parts = {
      state: badge(server.state),
      labels: h("div", { class: "labels" }),
      why: h("span", {}),
      since: h("div", { class: "quiet" }),
      weight: h("span", {}),
      by: h("div", { class: "quiet" }),
      numbers: CHARTS.map(() => h("span", {})),
    });
    if (app.mode !== "off") {
      parts.weight = h("input", {
        type: "number",
        class: "weight",
        min: 0,
        max: 65535,
        "aria-label": `Weight of ${server.server}`,
        oninput: ({ target }) => {
          const good = this.weights.edit(node.server, target.value, this.upstream.revision);
          attribute(target, "aria-invalid", good ? null : "true");
        },
        onkeydown: (event) => event.key === "Enter" && this.weights.apply(),
      });
    }
    const ip = machine(server.server);
    const address = [h("b", {}, server.server)];
    if (ip) {
      const where = h("a", { href: to("host", ip) }, "machine", hidden(` ${ip}`));
      address.push(" ", h("small", {}, where));
    }
    const { charts } = this.#rows.get(server.id);
    node.append(
      cell("State", "", parts.state),
      cell("Server", "server long", address, parts.labels),
      cell("Why", "why long", parts.why, parts.since, parts.by),
      cell("Weight", "number", parts.weight),
      ...CHARTS.map((heading, i) => cell(heading, "number", parts.numbers[i], charts[i].root)),
      cell("", "actions", this.#actions(node)),
    );
    return node;
  }

  // Up, Drain, Down, and a menu of the rest.
  #actions(node) {
    const { app, name } = this;
    const address = node.server.server;
    const verb = (label, verb) =>
      button(label, () => actions.serverVerb(app, name, node.server, verb), {
        "aria-label": `${label} ${address}`,
        "data-verb": verb,
      });
    const menu = h("div", { class: "menu" });
    const item = (label, act) => menu.append(button(label, act));
    item("Health", () => actions.showCheck(app, name, node.server));
    if (app.mode !== "off") {
      item("Check now", () => actions.probe(app, name, node.server));
      item("Call it unhealthy", () => actions.opine(app, name, node.server, "unhealthy"));
      item("Call it healthy", () => actions.opine(app, name, node.server, "healthy"));
    }
    if (app.mode === "on") {
      item("Edit", () => editServer(app, name, node.server, this.upstream.digest));
      item("Remove", () => removeServer(app, name, node.server));
    }
    const more = h(
      "details",
      {},
      h("summary", { "aria-label": `More about ${address}` }, "More"),
      menu,
    );
    const close = (event) => {
      if (event.type === "keydown" && event.key !== "Escape") return;
      if (event.type === "focusout" && more.contains(event.relatedTarget)) return;
      more.open = false;
    };
    menu.addEventListener("click", close);
    more.addEventListener("keydown", close);
    more.addEventListener("focusout", close);
    const verbs =
      app.mode === "off" ? [] : [verb("Up", "up"), verb("Drain", "drain"), verb("Down", "down")];
    return h("div", { class: "buttons" }, verbs, more);
  }

  #update(node, server) {
    node.server = server;
    const { parts } = node;
    setBadge(parts.state, server.state);
    attribute(node, "data-state", server.state);
    text(parts.why, whyText(server));
    this.#since(node, server);
    const labels = Object.entries(server.labels ?? {}).map(([k, v]) => (v ? `${k}:${v}` : k));
    const kind = server.origin === "config" ? [] : [`from ${server.origin}`];
    const extra = [...kind, ...(server.backup ? ["backup"] : []), ...labels];
    text(parts.labels, extra.join(" · "));
    const edit = this.weights.edits.get(server.id);
    if (parts.weight instanceof HTMLInputElement) {
      const value = String(edit?.weight ?? server.weight);
      // What is being written is not to be taken away.
      const writing = document.activeElement === parts.weight;
      if (!writing && parts.weight.value !== value) parts.weight.value = value;
      parts.weight.classList.toggle("edited", Boolean(edit));
    } else text(parts.weight, number(server.weight));
    const { values } = this.#rows.get(server.id);
    parts.numbers.forEach((part, i) => text(part, number(values[i])));
    const { sent = 0, received = 0, requests = 0, fails = 0 } = server.counters ?? {};
    const tries = `${number(requests)} requests, ${number(fails)} failed`;
    const totals = `${tries}, ${bytes(sent)} sent, ${bytes(received)} received`;
    attribute(parts.numbers[1].parentElement, "title", totals);
  }

  // Since when it is so, until when, and who has set what is not the reason given.
  #since(node, server) {
    const from = since(server);
    const admin = [server.host_admin, server.admin].find(
      (it) => it && it.since && it.state !== "up",
    );
    const key = JSON.stringify([from, admin ?? null, server.why?.code]);
    if (node.said === key) return;
    node.said = key;
    const { parts } = node;
    const until = admin?.until ? [" until ", time(admin.until)] : [];
    parts.since.replaceChildren(...(from ? ["since ", time(from), ...until] : []));
    const why = server.why?.text ?? "";
    // The reason tells by whom and why already, most of the time.
    if (!admin || (why.includes(admin.by) && why.includes(admin.reason))) {
      return parts.by.replaceChildren();
    }
    const where = admin === server.host_admin ? "the machine" : "it";
    const reason = admin.reason ? `: “${admin.reason}”` : "";
    parts.by.replaceChildren(`${admin.by || admin.from} set ${where} to ${admin.state}${reason}`);
  }
}

const CHARTS = ["In flight", "Requests/s", "Errors/s", "Time, ms"];
