// What has changed, the last of it first.

import { attribute, cell, h, keyed, row, table, text, time, to } from "./dom.js";

const KEPT = 1000;
const ROWS = 200;

export class EventsView {
  title = "Events";
  events = [];
  #due = false;

  constructor(app) {
    this.app = app;
    this.note = h("p", { class: "quiet", role: "status" }, "Reading …");
    const { root, body } = table("Events", [
      ["Time"],
      ["What"],
      ["Of"],
      ["From"],
      ["To"],
      ["By"],
      ["Reason"],
    ]);
    this.body = body;
    this.sought = h("input", {
      type: "search",
      "aria-label": "Search events",
      placeholder: "Upstream, server, person, reason",
      oninput: () => this.draw(),
    });
    this.root = h(
      "div",
      {},
      h("h2", {}, "Events"),
      h("div", { class: "tools" }, this.sought),
      this.note,
      root,
    );
  }

  async start() {
    try {
      const { events } = await this.app.api.get(["events"], { since: 0 });
      this.events.unshift(...events);
      text(this.note, "");
    } catch (problem) {
      text(this.note, problem.message);
    }
    this.draw();
  }

  stop() {}

  event(event) {
    this.events.push(event);
    this.draw();
  }

  draw() {
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      this.#draw();
    });
  }

  #draw() {
    this.events.splice(0, this.events.length - KEPT);
    const sought = this.sought.value.trim().toLowerCase();
    const bySeq = new Map();
    for (const event of this.events) {
      const fields = [
        event.kind,
        event.upstream,
        event.server,
        event.host,
        event.route,
        event.by,
        event.reason,
      ];
      if (
        !sought ||
        fields.some((it) =>
          String(it ?? "")
            .toLowerCase()
            .includes(sought),
        )
      ) {
        bySeq.set(event.seq, event);
      }
    }
    const shown = [...bySeq.values()].reverse().slice(0, ROWS);
    this.note.hidden = shown.length > 0;
    if (shown.length === 0 && this.note.textContent === "") text(this.note, "No event is kept.");
    keyed(
      this.body,
      shown,
      (event) => event.seq,
      (event) => {
        const of = [];
        if (event.upstream) of.push(h("a", { href: to("u", event.upstream) }, event.upstream), " ");
        if (event.host) of.push(h("a", { href: to("host", event.host) }, event.host));
        of.push(event.server ?? event.route ?? "");
        return row(
          cell("Time", "", time(event.time)),
          cell("What", "", event.kind),
          cell("Of", "long", h("span", {}, of)),
          cell("From", "", h("span", {}, String(event.from ?? ""))),
          cell("To", "", h("b", {}, String(event.to ?? ""))),
          cell("By", "", h("span", {}, event.by ?? "")),
          cell("Reason", "long", h("span", {}, event.reason ?? "")),
        );
      },
      (node, event) => attribute(node, "data-kind", event.kind),
    );
  }
}
