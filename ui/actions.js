// What an operator does: each action asks for its reason, says what it would do before it does it,
// and has a way back.

import { serverPath } from "./api.js";
import { ask, explain, failed, toast } from "./dialog.js";
import { field, h, number, plural, time } from "./dom.js";
import { badge, eligibleText } from "./health.js";

const SAY = { up: "Take up", drain: "Drain", down: "Take down" };
const DONE = { up: "is up", drain: "drains", down: "is down" };

const ENDS = [
  ["", "not by itself"],
  ["15m", "after 15 minutes"],
  ["1h", "after an hour"],
  ["4h", "after 4 hours"],
  ["1d", "after a day"],
];

function reasonFields(verb) {
  const reason = h("input", {
    type: "text",
    maxlength: 255,
    autocomplete: "off",
    autofocus: true,
    required: verb !== "up",
  });
  const ttl = h(
    "select",
    {},
    ENDS.map(([value, said]) => h("option", { value }, said)),
  );
  const fields = [field("Reason", reason, "Shown to everybody, and logged.")];
  if (verb !== "up") fields.push(field("Ends", ttl));
  const read = () => ({ reason: reason.value, ttl: verb === "up" ? null : ttl.value || null });
  return { fields, read };
}

// Sets a server up, down, or to drain.
export async function serverVerb(app, upstream, server, verb) {
  const path = serverPath(upstream, server);
  const { fields, read } = reasonFields(verb);
  let was = server;
  const effect = h("div", { class: "effect", role: "status" });
  const anyway = h("input", { type: "checkbox" });
  const body = () => {
    const { reason, ttl } = read();
    const min_up = verb === "up" || anyway.checked ? null : 1;
    return Object.fromEntries(
      Object.entries({ reason, ttl, min_up }).filter(([, value]) => value !== null),
    );
  };
  // What it would do is asked with nothing done.
  const preview = async () => {
    try {
      await app.api.send("POST", [...path, verb], { query: { dry_run: 1 }, body: body() });
    } catch (problem) {
      if (problem.code !== "min-up") return effect.replaceChildren(explain(problem));
      effect.classList.add("harm");
      effect.replaceChildren(
        `${upstream} would have no server left that takes requests.`,
        h("label", {}, anyway, " Do it all the same"),
      );
    }
  };
  const answer = await ask({
    title: `${SAY[verb]} ${server.server}`,
    content: [
      h("p", {}, "of upstream ", h("b", {}, upstream), ", which is now ", badge(server.state)),
      fields,
      effect,
    ],
    say: SAY[verb],
    danger: verb === "down",
    submit: async () => {
      // What is shown may be older than what undo has to set again.
      was = await app.api.get(path);
      return app.api.send("POST", [...path, verb], { body: body() });
    },
    opened: () => verb !== "up" && preview(),
  });
  if (!answer) return;
  app.touched(upstream);
  if (!answer.changed) return void toast(`${server.server} was so already`);
  const ours = answer.server.admin.reason;
  const undo = () => restore(app, upstream, was, ours);
  const note = toast(`${server.server} of ${upstream} ${DONE[verb]}`, { undo });
  if (verb !== "up") watchDrain(app, upstream, server, verb, note);
}

// The verb and the body that set what was said before, unless somebody else has said something
// since: `ours` is the reason that stands if nobody has.
function before(admin, ours) {
  const { state = "up", reason = "", until = null } = admin ?? {};
  const body = { reason, if_reason: ours };
  if (state === "up" || !until) return [state, body];
  const left = Math.round((new Date(until) - Date.now()) / 1000);
  // It may have ended meanwhile.
  return left > 0 ? [state, { ...body, ttl: left }] : ["up", body];
}

async function restore(app, upstream, server, ours) {
  const [verb, body] = before(server.admin, ours);
  await app.api.send("POST", [...serverPath(upstream, server), verb], { body });
  app.touched(upstream);
}

// Shows the requests that are still in flight, until there are none.
async function watchDrain(app, upstream, server, verb, note) {
  const state = verb === "down" ? "down" : "drain";
  while (note.node.isConnected) {
    let now;
    try {
      now = await app.api.get(serverPath(upstream, server));
    } catch (problem) {
      if (problem.status === 404) return;
      now = null;
    }
    if (now && now.admin.state !== state) return;
    if (now && now.active === 0) {
      note.say(`${server.server} of ${upstream} ${DONE[verb]}: no request is in flight`);
      return;
    }
    if (now) {
      const upgraded = now.upgraded ? `, ${now.upgraded} of them upgraded` : "";
      const flight = `${plural(now.active, "request")} in flight${upgraded}`;
      note.say(`${server.server} of ${upstream} ${DONE[verb]}: ${flight}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

// Sets a whole machine up, down, or to drain.
export async function hostVerb(app, ip, verb) {
  const { fields, read } = reasonFields(verb);
  const effect = h("div", { class: "effect", role: "status" });
  const touched = h("div", {}, h("p", { class: "quiet" }, "Reading what is on it …"));
  const anyway = h("input", { type: "checkbox" });
  let admin = null;
  const body = () => {
    const { reason, ttl } = read();
    const said = { reason };
    if (ttl) said.ttl = ttl;
    if (verb !== "up" && anyway.checked) said.min_up = 0;
    return said;
  };
  const opened = async () => {
    try {
      const host = await app.api.get(["hosts", ip]);
      const items = host.servers ?? [];
      touched.replaceChildren(
        h("p", {}, `It touches ${plural(items.length, "server")}:`),
        h(
          "ul",
          { class: "touches", tabindex: 0, "aria-label": "What it touches" },
          items.map((server) => {
            const entry = app.store.upstreams.get(server.upstream);
            const left = entry ? ` · ${eligibleText(entry)} take requests now` : "";
            return h(
              "li",
              {},
              badge(server.state),
              ` ${server.server} of `,
              h("b", {}, server.upstream),
              h("span", { class: "quiet" }, left),
            );
          }),
        ),
      );
      if (verb === "up") return;
      await app.api.send("POST", ["hosts", ip, verb], { query: { dry_run: 1 }, body: body() });
    } catch (problem) {
      if (problem.code !== "min-up") return effect.replaceChildren(explain(problem));
      const where = problem.body.upstreams ?? [];
      effect.classList.add("harm");
      effect.replaceChildren(
        `No server would be left that takes requests: ${where.join(", ")}.`,
        h("label", {}, anyway, " Do it all the same"),
      );
    }
  };
  const answer = await ask({
    title: `${SAY[verb]} machine ${ip}`,
    content: [touched, fields, effect],
    say: SAY[verb],
    danger: verb === "down",
    submit: async () => {
      admin = (await app.api.get(["hosts", ip])).admin;
      return app.api.send("POST", ["hosts", ip, verb], { body: body() });
    },
    opened,
  });
  if (!answer) return;
  app.touchedAll();
  if (!answer.changed) return void toast(`machine ${ip} was so already`);
  const ours = answer.admin?.reason ?? "";
  toast(`machine ${ip} ${DONE[verb]}`, {
    undo: async () => {
      const [verb, body] = before(admin, ours);
      if (verb !== "up") body.min_up = 0;
      await app.api.send("POST", ["hosts", ip, verb], { body });
      app.touchedAll();
    },
  });
}

// Probes a server now.
export async function probe(app, upstream, server) {
  try {
    const path = [...serverPath(upstream, server), "check"];
    const answer = await app.api.send("POST", path, { wait: 120000 });
    const said = answer.peers.map((peer) => {
      if (!peer.check) return `${peer.peer}: not checked`;
      if (peer.check.last_passed) return `${peer.peer}: passed`;
      return `${peer.peer}: failed, ${peer.check.failure?.text ?? "for no known reason"}`;
    });
    toast(said.join("; ") || `${server.server} has no address`);
    app.touched(upstream);
  } catch (problem) {
    failed(problem);
  }
}

// What is known of a server's health.
export async function showCheck(app, upstream, server) {
  const content = h("div", {}, h("p", { class: "quiet" }, "Reading …"));
  const fill = async () => {
    try {
      const answer = await app.api.get([...serverPath(upstream, server), "check"]);
      content.replaceChildren(...answer.peers.map(peerHealth));
    } catch (problem) {
      content.replaceChildren(explain(problem));
    }
  };
  await ask({
    title: `Health of ${server.server}`,
    content,
    say: "Close",
    told: true,
    submit: () => true,
    opened: fill,
  });
}

function peerHealth(peer) {
  const facts = [];
  const fact = (name, ...said) => facts.push(h("dt", {}, name), h("dd", {}, said));
  const { check, external, outlier } = peer;
  if (check) {
    fact("Check", check.verdict);
    fact("Probes", `${number(check.checks)}, of which ${number(check.fails)} failed`);
    fact("Became unhealthy", plural(check.unhealthy, "time"));
    const last = check.last_passed ? "passed " : "failed ";
    if (check.last) fact("Last", last, time(check.last), `, ${check.in_a_row} in a row`);
    if (check.failure) fact("Last failure", check.failure.text);
  } else fact("Check", "none");
  if (external) {
    fact(
      "Outside checker",
      external.verdict,
      external.until ? " until " : "",
      time(external.until),
    );
  }
  if (outlier) {
    const until = outlier.ejected_until;
    fact("Errors of requests", `${number(outlier.errors)} in a row`);
    fact("Ejected", until ? "until " : "no", time(until));
  }
  return h("section", {}, h("h3", {}, peer.peer, " ", badge(peer.state)), h("dl", {}, facts));
}

// Takes the verdict of somebody who knows more than a check.
export async function opine(app, upstream, server, verdict) {
  const reason = h("input", { type: "text", maxlength: 255, required: true, autofocus: true });
  const ttl = h(
    "select",
    {},
    ENDS.map(([value, said]) => h("option", { value }, said)),
  );
  const answer = await ask({
    title: `Call ${server.server} ${verdict}`,
    content: [field("Reason", reason), verdict === "unhealthy" ? field("Ends", ttl) : null].filter(
      Boolean,
    ),
    say: `Call it ${verdict}`,
    danger: verdict === "unhealthy",
    submit: () =>
      app.api.send("POST", [...serverPath(upstream, server), verdict], {
        body: { reason: reason.value, ...(ttl.value && { ttl: ttl.value }) },
      }),
  });
  if (!answer) return;
  app.touched(upstream);
  const other = verdict === "unhealthy" ? "healthy" : "unhealthy";
  const undo = async () => {
    await app.api.send("POST", [...serverPath(upstream, server), other], { body: {} });
    app.touched(upstream);
  };
  toast(`${server.server} is called ${verdict}`, answer.changed ? { undo } : {});
}
