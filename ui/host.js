// A machine: every server on one address, in every upstream.

import * as actions from "./actions.js";
import { attribute, button, cell, h, keyed, row, table, text, time, to } from "./dom.js";
import { badge, setBadge, whyText } from "./health.js";

const EVERY = 3000;

export class HostView {
  #timer = null;
  #stopped = false;

  constructor(app, ip) {
    this.app = app;
    this.ip = ip;
    this.title = `Machine ${ip}`;
    this.note = h("p", { class: "quiet", role: "status" }, "Reading …");
    this.said = h("p", {});
    const { root, body } = table(`Servers on ${ip}`, [
      ["State"],
      ["Server"],
      ["Upstream"],
      ["Why"],
      ["In flight", "number"],
    ]);
    this.table = root;
    this.body = body;
    const verb = (label, verb) =>
      button(label, () => actions.hostVerb(app, ip, verb), {
        "data-verb": verb,
        "aria-label": `${label} machine ${ip}`,
      });
    const verbs = [verb("Up", "up"), verb("Drain", "drain"), verb("Down", "down")];
    this.root = h(
      "div",
      {},
      h(
        "div",
        { class: "head" },
        h("h2", {}, `Machine ${ip}`),
        h("div", { class: "buttons" }, app.mode === "off" ? [] : verbs),
      ),
      this.said,
      this.note,
      root,
    );
  }

  start() {
    this.read();
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  touched() {
    this.read();
  }

  async read() {
    clearTimeout(this.#timer);
    const turn = (this.turn = {});
    let host = null;
    let said = "";
    try {
      host = await this.app.api.get(["hosts", this.ip]);
    } catch (problem) {
      said = problem.status === 404 ? "No server is on this machine." : problem.message;
    }
    if (turn !== this.turn || this.#stopped) return;
    text(this.note, said);
    this.note.hidden = !said;
    this.table.hidden = !host;
    if (host) this.#draw(host);
    this.#timer = setTimeout(() => this.read(), EVERY);
  }

  #draw({ admin, servers = [] }) {
    const set = admin && admin.state !== "up";
    const reason = set && admin.reason ? `: “${admin.reason}”` : "";
    this.said.replaceChildren(
      ...(set
        ? [
            "The machine is set to ",
            h("b", {}, admin.state),
            ` by ${admin.by}${reason}, since `,
            time(admin.since),
          ]
        : ["Nothing is said of the machine as a whole."]),
    );
    keyed(
      this.body,
      servers,
      (server) => `${server.upstream} ${server.id}`,
      (server) => {
        const parts = { state: badge(server.state), why: h("span"), active: h("span") };
        const node = row(
          cell("State", "", parts.state),
          cell("Server", "server long", h("b", {}, server.server)),
          cell("Upstream", "long", h("a", { href: to("u", server.upstream) }, server.upstream)),
          cell("Why", "why long", parts.why),
          cell("In flight", "number", parts.active),
        );
        node.parts = parts;
        return node;
      },
      (node, server) => {
        setBadge(node.parts.state, server.state);
        attribute(node, "data-state", server.state);
        text(node.parts.why, whyText(server));
        text(node.parts.active, server.active);
      },
    );
  }
}
