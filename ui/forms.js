// What is added, edited, removed: servers and upstreams.

import { serverPath } from "./api.js";
import { ask, toast } from "./dialog.js";
import { field, h, to } from "./dom.js";
import { differences } from "./weights.js";

const input = (attributes) => h("input", { type: "text", autocomplete: "off", ...attributes });

// The fields of a server; its labels a line each.
function serverFields(server) {
  const labels = Object.entries(server.labels ?? {}).map(([key, value]) => `${key}:${value}`);
  const weight = input({ type: "number", min: 0, max: 65535, value: server.weight ?? 1 });
  const conns = input({ type: "number", min: 0, max: 1048575, value: server.max_conns ?? 0 });
  const fails = input({ type: "number", min: 0, value: server.max_fails ?? 1 });
  const timeout = input({ value: server.fail_timeout ?? "10s" });
  const slow = input({ value: server.slow_start ?? "0s" });
  const backup = h("input", { type: "checkbox", checked: server.backup ?? false });
  const text = h("textarea", { rows: 2, value: labels.join("\n"), spellcheck: "false" });
  const content = h(
    "div",
    { class: "grid" },
    field("Weight", weight),
    field("max_conns", conns, "0: no limit"),
    field("max_fails", fails),
    field("fail_timeout", timeout),
    field("slow_start", slow),
    field("Backup", backup),
    field("Labels", text, "A line each: key:value"),
  );
  const read = () => ({
    weight: Number(weight.value),
    max_conns: Number(conns.value),
    max_fails: Number(fails.value),
    fail_timeout: timeout.value,
    slow_start: slow.value,
    backup: backup.checked,
    labels: Object.fromEntries(
      text.value
        .split("\n")
        .map((line) => line.trim())
        .filter(Boolean)
        .map((line) => {
          const colon = line.indexOf(":");
          return colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1)];
        }),
    ),
  });
  return { content, read };
}

export async function addServer(app, upstream) {
  const address = input({ required: true, placeholder: "10.0.0.1:8080" });
  const { content, read } = serverFields(app.defaults(upstream));
  let name;
  const answer = await ask({
    title: `Add a server to ${upstream}`,
    content: [field("Address", address, "ip:port, [v6]:port, unix:/path, or a name"), content],
    say: "Add",
    submit: () => {
      name = address.value.trim();
      const path = ["upstreams", upstream, "servers", name];
      return app.api.send("PUT", path, { body: read(), headers: { "If-None-Match": "*" } });
    },
  });
  if (!answer) return;
  app.touched(upstream);
  const undo = async () => {
    await app.api.send("DELETE", serverPath(upstream, answer.server));
    app.touched(upstream);
  };
  toast(`${answer.server.server} added to ${upstream}`, { undo });
}

export async function editServer(app, upstream, server, digest) {
  const { content, read } = serverFields(server);
  const path = serverPath(upstream, server);
  const before = read();
  const changes = () => {
    const now = read();
    const changed = {};
    for (const [name, value] of Object.entries(now)) {
      if (JSON.stringify(value) !== JSON.stringify(before[name])) changed[name] = value;
    }
    if (changed.labels) {
      // In a patch a label that is not named stays.
      const gone = Object.keys(before.labels).filter((key) => !Object.hasOwn(now.labels, key));
      changed.labels = { ...now.labels, ...Object.fromEntries(gone.map((key) => [key, null])) };
    }
    return changed;
  };
  const back = () => {
    const changed = {};
    for (const name of Object.keys(changes())) changed[name] = before[name];
    if (changed.labels) {
      const fresh = Object.keys(read().labels).filter((key) => !Object.hasOwn(before.labels, key));
      changed.labels = { ...before.labels, ...Object.fromEntries(fresh.map((key) => [key, null])) };
    }
    return changed;
  };
  const headers = { "If-Match": `"${digest}"` };
  const answer = await ask({
    title: `Edit ${server.server}`,
    content,
    say: "Set",
    submit: () => app.api.send("PATCH", path, { body: changes(), headers }),
  });
  if (!answer) return;
  app.touched(upstream);
  const undone = back();
  const undo = async () => {
    await app.api.send("PATCH", path, { body: undone });
    app.touched(upstream);
  };
  toast(`${server.server} of ${upstream} set`, answer.changed ? { undo } : {});
}

export async function removeServer(app, upstream, server) {
  const busy = server.active
    ? `${server.active} requests are in flight; they end undisturbed.`
    : "No request is in flight.";
  const stays =
    server.origin === "config"
      ? "The configuration declares it: it stays removed until its line changes."
      : null;
  const answer = await ask({
    title: `Remove ${server.server} from ${upstream}`,
    content: [h("p", {}, busy), stays && h("p", {}, stays)].filter(Boolean),
    say: "Remove",
    danger: true,
    submit: () => app.api.send("DELETE", serverPath(upstream, server)),
  });
  if (!answer) return;
  app.touched(upstream);
  const { weight, max_conns, max_fails, fail_timeout, slow_start, backup, route, labels } = server;
  const body = { weight, max_conns, max_fails, fail_timeout, slow_start, backup, route, labels };
  const { state, reason } = server.admin;
  if (state !== "up") body.admin = { state, reason };
  const undo = async () => {
    const path = ["upstreams", upstream, "servers", server.server];
    await app.api.send("PUT", path, { body, headers: { "If-None-Match": "*" } });
    app.touched(upstream);
  };
  toast(`${server.server} removed from ${upstream}`, { undo });
}

const METHODS = [
  "round_robin",
  "least_conn",
  "random",
  "random two",
  "hash",
  "hash consistent",
  "ip_hash",
  "least_time header",
  "least_time last_byte",
];

// Lines as in the configuration: an address, weight=, max_conns=, backup.
function serversOf(text) {
  const lines = text.split("\n").map((line) => line.trim().replace(/^server\s+|;$/g, ""));
  return lines.filter(Boolean).map((line) => {
    const [server, ...words] = line.split(/\s+/);
    const said = { server };
    for (const word of words) {
      const [name, value] = word.split("=", 2);
      if (name === "backup") said.backup = true;
      // The API says what is wrong with the others.
      else said[name] = /^\d+$/.test(value ?? "") ? Number(value) : (value ?? "");
    }
    return said;
  });
}

export async function createUpstream(app) {
  const name = input({ required: true, spellcheck: "false" });
  const method = h(
    "select",
    {},
    METHODS.map((value) => h("option", { value }, value)),
  );
  const servers = h("textarea", {
    rows: 5,
    spellcheck: "false",
    placeholder: "10.0.0.1:8080 weight=2",
  });
  const answer = await ask({
    title: "Create an upstream",
    content: [
      field("Name", name),
      field("Method", method),
      field("Servers", servers, "A line each: address, weight=, max_conns=, max_fails=, backup"),
    ],
    say: "Create",
    submit: () =>
      app.api.send("PUT", ["upstreams", name.value.trim()], {
        body: { method: method.value, servers: serversOf(servers.value) },
        headers: { "If-None-Match": "*" },
      }),
  });
  if (!answer) return;
  app.touched(answer.upstream);
  const undo = async () => {
    await app.api.send("DELETE", ["upstreams", answer.upstream]);
    app.touched(answer.upstream);
  };
  toast(`upstream ${answer.upstream} created`, { undo });
  location.hash = to("u", answer.upstream);
}

// The body of a PUT that states an upstream as it was read.
function stated(upstream) {
  const { method, hash_key, defaults, host, tls_name, check, outlier, servers } = upstream;
  return { method, hash_key, defaults, host, tls_name, check, outlier, servers };
}

export async function removeUpstream(app, upstream) {
  const path = ["upstreams", upstream.name];
  const headers = { "If-Match": `"${upstream.digest}"` };
  const effect = h("div", { class: "effect" });
  const answer = await ask({
    title: `Remove upstream ${upstream.name}`,
    content: [
      h("p", {}, "Requests in flight end undisturbed, new ones are answered with 502."),
      effect,
    ],
    say: "Remove",
    danger: true,
    wide: true,
    submit: () => app.api.send("DELETE", path, { headers }),
    opened: async ({ wrong }) => {
      try {
        const dry = await app.api.send("DELETE", path, { headers, query: { dry_run: 1 } });
        effect.replaceChildren(differences(dry.diff));
      } catch (problem) {
        wrong.textContent = problem.message;
      }
    },
  });
  if (!answer) return;
  app.store.drop(upstream.name);
  const undo = async () => {
    const said = { body: stated(upstream), headers: { "If-None-Match": "*" } };
    await app.api.send("PUT", path, said);
    app.touched(upstream.name);
  };
  toast(`upstream ${upstream.name} removed`, { undo });
  location.hash = "#/";
}
