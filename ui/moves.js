// What an operator does with a route: each change is of the route as it was shown, previewed, and
// has a way back.

import { ask, explain, failed, overtaken, toast } from "./dialog.js";
import { button, cell, field, h, row, table } from "./dom.js";
import { servesText } from "./health.js";
import { differences } from "./weights.js";

// Changes a route that is still as it was shown. `content` shows what is changed, `body()` says it;
// `seen` is called where there is something new to see, `again` takes the route as it is now.
async function change(
  app,
  route,
  { title, content, body, say, done, danger, opened },
  seen,
  again,
) {
  const path = ["routes", route.key];
  const headers = { "If-Match": `"${route.digest}"` };
  let stale = false;
  const answer = await ask({
    title: `${title} ${route.key}`,
    content,
    say,
    danger,
    opened,
    submit: async () => {
      try {
        return await app.api.send("PATCH", path, { body: body(), headers });
      } catch (problem) {
        if (problem.code !== "stale") throw problem;
        stale = true;
        return null;
      }
    },
  });
  if (stale) return conflict(app, route, body(), seen, again);
  if (!answer) return;
  seen();
  if (!answer.changed) return void toast(`${route.key} was so already`);
  const { upstream, status, reason } = route;
  const undo = async () => {
    await app.api.send("PATCH", path, {
      body: { upstream, status, reason },
      headers: { "If-Match": `"${answer.route.digest}"` },
    });
    seen();
  };
  toast(`${route.key} ${done(answer.route)}`, { undo });
}

// Somebody else was faster: shows what the route is now beside what was wanted.
async function conflict(app, route, wanted, seen, again) {
  let now;
  try {
    now = { ...(await app.api.get(["routes", route.key])), key: route.key };
  } catch (problem) {
    return failed(problem);
  } finally {
    seen();
  }
  const { root, body } = table("Conflicts", [["What"], ["When you began"], ["Now"], ["Yours"]]);
  for (const name of ["upstream", "status", "reason"]) {
    const yours = wanted[name] ?? route[name];
    const said = [route[name], now[name], yours].map((value) => value || "–");
    const headings = ["When you began", "Now", "Yours"];
    const node = row(cell("What", "", name), ...said.map((it, i) => cell(headings[i], "long", it)));
    if (now[name] !== route[name]) node.classList.add("changed");
    body.append(node);
  }
  if (await overtaken("route", route.key, root)) again(app, now, seen);
}

// Leads a key to another upstream. Where a likely one is known it is there already: the switch of an
// alias is to ask for it, and to say yes.
export function moveRoute(app, route, seen) {
  const { store } = app;
  const likely = others(app, route);
  const names = h("datalist", { id: "route-upstreams" });
  names.append(...store.names.slice(0, 500).map((value) => h("option", { value })));
  const upstream = h("input", {
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    autofocus: true,
    list: names.id,
    value: likely[0] ?? "",
    oninput: () => preview(),
  });
  const reason = h("input", { type: "text", maxlength: 255, autocomplete: "off" });
  const choice = likely.map((name) =>
    button(name, () => {
      upstream.value = name;
      preview();
    }),
  );
  const body = () => ({ upstream: upstream.value.trim(), reason: reason.value || route.reason });
  const effect = h("div", { class: "effect", role: "status" });
  let turn;
  // What it would do is asked with nothing done.
  const preview = async () => {
    const mine = (turn = {});
    for (const node of choice) {
      node.setAttribute("aria-pressed", String(node.textContent === upstream.value.trim()));
    }
    const show = (bad, ...said) => {
      if (mine !== turn) return;
      effect.classList.toggle("harm", bad);
      effect.replaceChildren(...said);
    };
    if (!upstream.value.trim()) return show(false);
    try {
      const { diff } = await app.api.send("PATCH", ["routes", route.key], {
        query: { dry_run: 1 },
        body: body(),
      });
      const left = servesText(store, upstream.value.trim());
      const takes = left.bad
        ? "No server takes requests there"
        : "Servers that take requests there";
      show(left.bad, differences(diff), h("p", {}, `${takes}: ${left.said || "not known"}.`));
    } catch (problem) {
      show(true, explain(problem));
    }
  };
  const at = servesText(store, route.upstream).said;
  const content = [
    h("p", {}, "It leads to ", h("b", {}, route.upstream), at && ` (${at})`),
    field("To upstream", upstream),
    likely.length > 1
      ? h("div", { class: "choice", role: "group", "aria-label": "Likely upstreams" }, choice)
      : null,
    field("Reason", reason),
    effect,
    names,
  ].filter(Boolean);
  const done = ({ upstream }) => {
    app.moved.set(route.key, route.upstream);
    return `leads to ${upstream}`;
  };
  const said = { title: "Move", content, body, say: "Move", done, opened: () => preview() };
  return change(app, route, said, seen, moveRoute);
}

export function suspendRoute(app, route, seen) {
  const reason = h("input", { type: "text", maxlength: 255, required: true, autofocus: true });
  const content = [
    h("p", {}, "Its requests are refused, those in flight end undisturbed."),
    field("Reason", reason, "Shown to everybody, and logged."),
  ];
  const body = () => ({ status: "suspended", reason: reason.value });
  const done = () => "is suspended";
  const said = { title: "Suspend", content, body, say: "Suspend", done, danger: true };
  return change(app, route, said, seen, suspendRoute);
}

export function resumeRoute(app, route, seen) {
  const content = [
    h("p", {}, `It is ${route.status}: ${route.reason || "no reason is said"}.`),
    h("p", {}, "It leads to ", h("b", {}, route.upstream), " again."),
  ];
  const body = () => ({ status: "active", reason: "" });
  const said = { title: "Resume", content, body, say: "Resume", done: () => "is active" };
  return change(app, route, said, seen, resumeRoute);
}

// Upstreams that a route is likely to be moved to: where it came from, the only other one, those
// whose name begins alike, as orders-v1 and orders-v2.
function others({ store, moved }, { key, upstream }) {
  const names = store.names.filter((name) => name !== upstream);
  const before = moved.get(key);
  if (names.length === 1) return names;
  const alike = (name) => {
    let i = 0;
    while (i < name.length && name[i] === upstream[i]) i++;
    return i;
  };
  const ranked = names
    .map((name) => [name === before ? Infinity : alike(name), name])
    .filter(
      ([rank, name]) => rank === Infinity || rank * 2 >= Math.min(name.length, upstream.length),
    )
    .sort(([a], [b]) => b - a);
  return ranked.slice(0, CHOICE).map(([, name]) => name);
}

// Upstreams that are offered.
const CHOICE = 4;
