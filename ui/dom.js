// Elements made of data. A text is set as a text: nothing that the API says is read as markup.

export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in PROPERTIES) node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

// Attributes that only say what a field holds at first; the property is what it holds.
const PROPERTIES = { value: 0, checked: 0 };

export function text(node, value) {
  const said = String(value ?? "");
  if (node.textContent !== said) node.textContent = said;
}

export function attribute(node, name, value) {
  if (value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// Has the children of a node be those of items, in their order. Nodes of items that stay stay, so
// that neither the focus nor what somebody is writing is lost.
export function keyed(parent, items, key, make, update) {
  const old = parent.keyed ?? new Map();
  const now = new Map();
  for (const item of items) {
    const name = key(item);
    now.set(name, old.get(name) ?? make(item));
    old.delete(name);
  }
  for (const node of old.values()) node.remove();
  parent.keyed = now;
  let at = parent.firstElementChild;
  for (const item of items) {
    const node = now.get(key(item));
    update(node, item);
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
}

// A table whose cells keep their headings on narrow screens, where each row is a card. Roles are
// said, since other displays than a table's take them away.
export function table(label, headings) {
  const body = h("tbody", { role: "rowgroup" });
  const cells = headings.map(([name, kind]) =>
    h("th", { role: "columnheader", scope: "col", class: kind }, name || hidden("Actions")),
  );
  const head = h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, cells));
  return { root: h("table", { role: "table", "aria-label": label }, head, body), body };
}

export function cell(heading, kind, ...children) {
  return h("td", { role: "cell", class: kind, "data-heading": heading || null }, ...children);
}

export function row(...cells) {
  return h("tr", { role: "row" }, ...cells);
}

export function hidden(said) {
  return h("span", { class: "unseen" }, said);
}

export function button(label, act, attributes = {}) {
  return h("button", { type: "button", onclick: act, ...attributes }, label);
}

let made = 0;

// A field of a form under its label.
export function field(label, control, hint) {
  control.id ||= `field-${++made}`;
  const parts = [h("label", { for: control.id }, label), control];
  if (hint) {
    const said = h("small", { id: `${control.id}-hint` }, hint);
    control.setAttribute("aria-describedby", said.id);
    parts.push(said);
  }
  return h("div", { class: "field" }, parts);
}

// Where a view of the page is.
export function to(...names) {
  return `#/${names.map(encodeURIComponent).join("/")}`;
}

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return (Math.abs(value) < 10 && value % 1 ? short : whole).format(value);
}

export function bytes(value) {
  const units = ["B", "KB", "MB", "GB"];
  let unit = 0;
  while (value >= 1024 && unit < 3) [value, unit] = [value / 1024, unit + 1];
  return `${(value < 10 && unit ? short : whole).format(value)} ${units[unit]}`;
}

// The reader's own zone and language.
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function timeText(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return "";
  return (at.toDateString() === new Date().toDateString() ? clock : day).format(at);
}

export function time(iso) {
  return iso ? h("time", { datetime: iso, title: day.format(new Date(iso)) }, timeText(iso)) : "";
}

export function plural(count, one, many = `${one}s`) {
  return `${whole.format(count)} ${count === 1 ? one : many}`;
}

// The machine of a server: its address without the port; null where it is a name or a socket.
export function machine(server) {
  const v6 = /^\[([0-9a-f:.]+)\]:\d+$/i.exec(server);
  if (v6) return v6[1];
  const v4 = /^(\d+\.\d+\.\d+\.\d+):\d+$/.exec(server);
  return v4 ? v4[1] : null;
}
