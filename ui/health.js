// States of servers as they are shown: by a word and a sign, colour comes on top.

import { h, keyed, plural } from "./dom.js";

// From the one to look at first.
export const STATES = ["unhealthy", "unavail", "checking", "draining", "down", "up"];

const SIGNS = {
  up: "●",
  draining: "◐",
  down: "■",
  unhealthy: "✕",
  unavail: "▲",
  checking: "…",
};

// What the operator wants so, or waits for.
const WANTED = { down: 1, draining: 1, checking: 1 };

export function badge(state) {
  const node = h("span", { class: "badge" });
  setBadge(node, state);
  return node;
}

export function setBadge(node, state) {
  if (node.dataset.state === state) return;
  node.dataset.state = state;
  node.replaceChildren(h("span", { "aria-hidden": "true" }, SIGNS[state] ?? "?"), ` ${state}`);
}

// How bad it is with an upstream: 0 all up, 1 something is wanted so, 2 something failed, 3 nothing
// serves.
export function severity(entry) {
  const states = Object.keys(entry.counts);
  if (entry.eligible === 0 && states.length > 0) return 3;
  if (states.some((state) => state !== "up" && !(state in WANTED))) return 2;
  return states.some((state) => state !== "up") ? 1 : 0;
}

export function summary(counts) {
  const parts = STATES.toReversed().filter((state) => counts[state]);
  return parts.map((state) => `${counts[state]} ${state}`).join(", ") || "no servers";
}

// A bar of an upstream's servers by their state.
export function bar() {
  return h("span", { class: "bar", "aria-hidden": "true" });
}

export function setBar(node, counts) {
  const parts = STATES.toReversed().filter((state) => counts[state]);
  keyed(
    node,
    parts,
    (state) => state,
    (state) => h("span", { "data-state": state }),
    (part, state) => (part.style.flexGrow = counts[state]),
  );
}

export function whyText(server) {
  if (server.why) return server.why.text;
  if (server.state !== "up") return server.state;
  return server.counters?.health_checks?.last_passed === false
    ? "up still: its last check failed"
    : "";
}

// Since when it is so, where that is known.
export function since(server) {
  const admin = [server.host_admin, server.admin].find((admin) => admin && admin.state !== "up");
  if (["down_by", "draining"].includes(server.why?.code)) return admin?.since ?? null;
  return server.counters?.downstart ?? null;
}

export function eligibleText(entry) {
  const all = Object.values(entry.counts).reduce((sum, n) => sum + n, 0);
  return all === 0 ? "no servers" : `${entry.eligible} of ${plural(all, "server")}`;
}

// Whether requests that are led to an upstream are served.
export function servesText(store, upstream) {
  const entry = store.upstreams.get(upstream);
  if (entry) return { said: eligibleText(entry), bad: entry.eligible === 0 };
  return store.complete
    ? { said: "there is no such upstream", bad: true }
    : { said: "", bad: false };
}
