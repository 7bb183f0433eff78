// Dialogs, and the notes of what was done.

import { button, h } from "./dom.js";

// Asks something; gives what submit() gives once that does not fail, or null. A failure of submit()
// is shown, and the dialog stays. What is only told has nothing to call off.
export function ask(what) {
  const { title, content, say, submit, danger = false, wide = false, told = false, opened } = what;
  return new Promise((resolve) => {
    let busy = false;
    const wrong = h("p", { class: "wrong", role: "alert" });
    const go = h("button", { type: "submit", class: danger ? "danger" : "primary" }, say);
    // What is being done is not to be called off any more.
    const cancel = () => busy || end(null);
    const heading = h("h2", { id: "dialog-title" }, title);
    const form = h(
      "form",
      {
        onsubmit: async (event) => {
          event.preventDefault();
          if (busy) return;
          go.disabled = busy = true;
          wrong.replaceChildren();
          try {
            end(await submit());
          } catch (problem) {
            wrong.replaceChildren(explain(problem));
            go.disabled = busy = false;
          }
        },
      },
      heading,
      content,
      wrong,
      h("div", { class: "buttons" }, told ? null : button("Cancel", cancel), go),
    );
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", class: wide && "wide" }, form);
    const end = (value) => {
      dialog.close();
      dialog.remove();
      resolve(value);
    };
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      cancel();
    });
    document.body.append(dialog);
    dialog.showModal();
    const first = dialog.querySelector("[autofocus], input:not([type=checkbox]), textarea, select");
    (first ?? go).focus();
    opened?.({ dialog, go, wrong });
  });
}

// Calls off what is asked, if anything is.
export function callOff() {
  document.querySelector("dialog")?.dispatchEvent(new Event("cancel", { cancelable: true }));
}

export function explain(problem) {
  const where = problem.body?.field ? ` (${problem.body.field})` : "";
  return `${problem.message}${where}`;
}

// Somebody else was faster: `shown` has what is there now beside what was wanted. Whether to go on
// from there.
export function overtaken(what, name, shown) {
  return ask({
    title: `Somebody else has changed this ${what}`,
    content: [
      h("p", {}, `${name} is no longer as it was when you began. Nothing was applied.`),
      shown,
    ],
    say: "Go on from what is there now",
    wide: true,
    submit: () => true,
  });
}

// Says what was done; with undo, a way back.
export function toast(said, { undo, kind = "done", stays = 15000 } = {}) {
  const words = h("span", {}, said);
  const node = h("div", { class: `toast ${kind}` }, words);
  const gone = () => node.remove();
  if (undo) {
    const back = button("Undo", async () => {
      back.disabled = true;
      try {
        await undo();
        node.remove();
        toast(`Undone: ${words.textContent}`);
      } catch (problem) {
        words.textContent = `Not undone: ${explain(problem)}`;
        node.classList.add("failed");
      }
    });
    node.append(back);
    stays = Math.max(stays, 120000);
  }
  node.append(button("Dismiss", gone, { class: "plain" }));
  const toasts = document.getElementById("toasts");
  toasts.prepend(node);
  while (toasts.children.length > 5) toasts.lastElementChild.remove();
  if (kind !== "failed") setTimeout(gone, stays);
  return { say: (value) => (words.textContent = value), gone, node };
}

export function failed(problem) {
  toast(explain(problem), { kind: "failed" });
}
