// What an operator looks at first: what is not up and why, then all upstreams.

import * as actions from "./actions.js";
import {
  attribute,
  button,
  cell,
  h,
  keyed,
  machine,
  number,
  plural,
  row,
  table,
  text,
  time,
  to,
} from "./dom.js";
import { createUpstream } from "./forms.js";
import { STATES, badge, bar, eligibleText, setBadge, setBar, severity } from "./health.js";
import { since, summary, whyText } from "./health.js";
import { List } from "./list.js";
import { SHOWN } from "./store.js";

// Rows of what is not up that are shown at first.
const ROWS = 12;
// Upstreams without a server that takes requests that are named.
const DEAD = 8;
// Servers of one machine, from where on it is named by itself.
const MACHINE = 3;

const FILTERS = [
  ["all", "All"],
  ["trouble", "Not all up"],
  ["none", "None takes requests"],
];

export class Overview {
  title = "Overview";
  #rows = ROWS;

  constructor(app) {
    this.app = app;
    // What was sought stays, from one visit to the next.
    this.sought = app.sought ??= { text: "", filter: "all" };
    this.sum = h("p", { class: "sum", role: "status" });
    this.deadNames = h("span", { class: "names" });
    this.deadMore = h("span");
    this.dead = h(
      "p",
      { class: "sum harm", role: "alert", hidden: true },
      h("b", {}, "No server takes requests: "),
      this.deadNames,
      " ",
      this.deadMore,
    );
    this.machines = h("p", { class: "chips" });
    const { root, body } = table("Servers that are not up", [
      ["State"],
      ["Server"],
      ["Upstream"],
      ["Why"],
      ["Since"],
      ["", "actions"],
    ]);
    this.troubles = root;
    this.body = body;
    this.more = button("", () => {
      this.#rows += 100;
      this.draw();
    });
    const search = h("input", {
      type: "search",
      value: this.sought.text,
      placeholder: "Name, or address of a machine",
      "aria-label": "Search upstreams",
      oninput: () => {
        this.sought.text = search.value;
        this.draw();
      },
      onkeydown: (event) => {
        if (event.key !== "ArrowDown") return;
        event.preventDefault();
        this.list.focus();
      },
    });
    this.search = search;
    this.filters = FILTERS.map(([value, said]) =>
      button(said, () => {
        this.sought.filter = value;
        this.draw();
      }),
    );
    this.found = h("span", { class: "quiet", role: "status" });
    this.host = h("a", { class: "chip", hidden: true });
    this.list = new List(
      "Upstreams",
      () => this.#row(),
      (node, name) => this.#fill(node, name),
    );
    const create =
      app.mode === "on" ? button("Create an upstream", () => createUpstream(app)) : null;
    this.root = h(
      "div",
      {},
      h(
        "section",
        { "aria-labelledby": "not-up" },
        h("h2", { id: "not-up" }, "Not up"),
        this.dead,
        this.sum,
        this.machines,
        this.troubles,
        this.more,
      ),
      h(
        "section",
        { "aria-labelledby": "all" },
        h("div", { class: "head" }, h("h2", { id: "all" }, "Upstreams"), create),
        h(
          "div",
          { class: "tools" },
          search,
          h("div", { class: "choice", role: "group", "aria-label": "Filter" }, this.filters),
          this.host,
          this.found,
        ),
        this.list.root,
      ),
    );
  }

  start() {
    this.list.start();
    this.draw();
  }

  stop() {
    this.list.stop();
  }

  draw() {
    this.#drawTroubles();
    this.#drawList();
  }

  #drawTroubles() {
    const { store } = this.app;
    const entries = [...store.upstreams.values()];
    const dead = entries.filter((entry) => severity(entry) === 3).map((entry) => entry.name);
    const rank = (server) => {
      const entry = store.upstreams.get(server.upstream);
      return (entry?.eligible === 0 ? 0 : 10) + STATES.indexOf(server.state);
    };
    const troubles = store.troubles
      .map((server) => [rank(server), server])
      .sort(([a], [b]) => a - b)
      .map(([, server]) => server);
    const count = store.more
      ? `more than ${SHOWN} servers are`
      : `${plural(troubles.length, "server")}`;
    const verb = store.more ? "" : troubles.length === 1 ? " is" : " are";
    if (store.zone === null && troubles.length === 0) text(this.sum, "Reading …");
    else if (troubles.length === 0) text(this.sum, "Everything is up.");
    else text(this.sum, `${count}${verb} not up.`);
    this.#drawDead(dead);

    const machines = new Map();
    for (const server of troubles) {
      const ip = machine(server.server);
      if (ip) machines.set(ip, (machines.get(ip) ?? 0) + 1);
    }
    const many = [...machines].filter(([, n]) => n >= MACHINE).sort((a, b) => b[1] - a[1]);
    keyed(
      this.machines,
      many.slice(0, 8),
      ([ip]) => ip,
      ([ip]) => h("a", { class: "chip", href: to("host", ip) }),
      (node, [ip, n]) => text(node, `machine ${ip}: ${n} not up`),
    );
    this.machines.hidden = many.length === 0;

    this.troubles.hidden = troubles.length === 0;
    this.more.hidden = troubles.length <= this.#rows;
    text(this.more, `Show more of the ${troubles.length}`);
    keyed(
      this.body,
      troubles.slice(0, this.#rows),
      (server) => `${server.upstream} ${server.id}`,
      (server) => this.#trouble(server),
      (node, server) => this.#fillTrouble(node, server),
    );
  }

  // Those first in which nobody is left to serve.
  #drawDead(names) {
    this.dead.hidden = names.length === 0;
    keyed(
      this.deadNames,
      names.slice(0, DEAD),
      (name) => name,
      (name) => h("a", { href: to("u", name) }, name),
      () => {},
    );
    const left = names.length - DEAD;
    text(this.deadMore, left > 0 ? `and ${number(left)} more` : "");
  }

  #trouble(server) {
    const { app } = this;
    const node = row();
    node.server = server;
    const parts = (node.parts = {
      state: badge(server.state),
      why: h("span"),
      since: h("span"),
      left: h("small", { class: "quiet" }),
    });
    const verb = (label, verb) =>
      button(label, () => actions.serverVerb(app, server.upstream, node.server, verb), {
        "aria-label": `${label} ${server.server} of ${server.upstream}`,
        "data-verb": verb,
      });
    const ip = machine(server.server);
    const links = ip ? [h("a", { class: "button", href: to("host", ip) }, "Machine")] : [];
    parts.up = verb("Up", "up");
    parts.down = verb("Down", "down");
    const verbs = app.mode === "off" ? [] : [parts.up, parts.down];
    node.append(
      cell("State", "", parts.state),
      cell("Server", "server long", h("b", {}, server.server)),
      cell(
        "Upstream",
        "long",
        h("a", { href: to("u", server.upstream) }, server.upstream),
        " ",
        parts.left,
      ),
      cell("Why", "why long", parts.why),
      cell("Since", "", parts.since),
      cell("", "actions", h("div", { class: "buttons" }, verbs, links)),
    );
    return node;
  }

  #fillTrouble(node, server) {
    node.server = server;
    const { parts } = node;
    setBadge(parts.state, server.state);
    attribute(node, "data-state", server.state);
    text(parts.why, whyText(server));
    // What is left beside it says how bad it is.
    const entry = this.app.store.upstreams.get(server.upstream);
    text(parts.left, entry ? `${eligibleText(entry)} left` : "");
    parts.left.classList.toggle("wrong", entry?.eligible === 0);
    // Up is for what the operator wants otherwise, down for what is not so already.
    parts.up.hidden = server.admin.state === "up";
    parts.down.hidden = server.admin.state === "down";
    const from = since(server);
    if (node.since === from) return;
    node.since = from;
    parts.since.replaceChildren(time(from));
  }

  #drawList() {
    const { store } = this.app;
    const sought = this.sought.text.trim().toLowerCase();
    const filter = this.sought.filter;
    this.filters.forEach((node, i) => {
      attribute(node, "aria-pressed", String(FILTERS[i][0] === filter));
    });
    let names = store.names;
    if (sought) names = names.filter((name) => name.includes(sought));
    if (filter !== "all") {
      const least = filter === "none" ? 3 : 1;
      names = names.filter((name) => severity(store.upstreams.get(name)) >= least);
    }
    const more = store.complete ? "" : ", reading more …";
    text(this.found, `${number(names.length)} of ${plural(store.names.length, "upstream")}${more}`);
    const ip =
      /^[0-9.]+$|^[0-9a-f]*:[0-9a-f:.]*$/.test(sought) && /\d/.test(sought) ? sought : null;
    this.host.hidden = !ip || (!ip.includes(":") && ip.split(".").length !== 4);
    if (!this.host.hidden) {
      text(this.host, `Servers on machine ${ip}`);
      attribute(this.host, "href", to("host", ip));
    }
    this.list.set(names);
  }

  #row() {
    const parts = { name: h("a"), bar: bar(), counts: h("span", { class: "counts" }) };
    parts.eligible = h("span", { class: "eligible number" });
    const node = h("div", { class: "item" }, parts.name, parts.bar, parts.eligible, parts.counts);
    node.parts = parts;
    return node;
  }

  #fill(node, name) {
    const entry = this.app.store.upstreams.get(name);
    if (!entry) return;
    const { parts } = node;
    text(parts.name, name);
    attribute(parts.name, "href", to("u", name));
    setBar(parts.bar, entry.counts);
    text(parts.eligible, eligibleText(entry));
    text(parts.counts, summary(entry.counts));
    attribute(node, "data-severity", severity(entry));
  }
}
