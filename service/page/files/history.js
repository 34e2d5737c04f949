// Revisions: who published what and why, what changed, and the way back.

import { ask, get, post, query } from "./api.js";
import { el, long, say, table } from "./dom.js";
import { may, session } from "./session.js";
import { when } from "./words.js";

const page = 50;

/** diffText shows a difference, whose lines begin with what they are. */
export function diffText(text) {
  if (text === "") return el("p", { class: "empty", id: "diff" }, "No difference.");
  const lines = text.split("\n").slice(0, 2000);
  return el("pre", { id: "diff", tabindex: "0", role: "region", "aria-label": "Difference" }, ...lines.map((l) =>
    el("span", { class: l.startsWith("+") ? "good" : l.startsWith("-") ? "bad" : undefined }, `${l}\n`)));
}

/** history lists revisions. */
export function history(view, { fail, fine }) {
  const t = table("Revisions", [["revision"], ["at"], ["who", "word"], ["why", "word"], ["do"]]);
  const next = el("button", { type: "button", hidden: true, onclick: () => load(oldest) }, "Older");
  const first = el("button", { type: "button", hidden: true, onclick: () => load(0) }, "Newest");
  const change = el("div", { id: "change" });
  let oldest = 0;
  let newest = 0;
  async function load(before) {
    try {
      const { revisions } = await get(query("v1/rules/history", { n: page, before: before || "" }));
      fine();
      if (!before) newest = revisions[0]?.version ?? 0;
      oldest = revisions.at(-1)?.version ?? 0;
      next.hidden = revisions.length < page;
      first.hidden = !before;
      t.body.replaceChildren(...revisions.map((r) => el("tr", {}, el("td", {}, `${r.version}${r.version === newest ? ", in force" : ""}`), el("td", {}, when(r.at)), el("td", { class: "word" }, r.author),
        el("td", { class: "word wide" }, long(r.comment)), el("td", {}, el("span", { class: "actions" },
          el("button", { type: "button", "aria-label": `Show revision ${r.version}`, onclick: () => show(r) }, "Show"),
          r.version !== newest && session.publishes && may("admin") && el("button", { type: "button", "aria-label": `Roll back to revision ${r.version}`, onclick: () => askBack(r) }, "Roll back"))))));
      document.body.dataset.listed = Number(document.body.dataset.listed ?? 0) + 1;
    } catch (err) {
      fail(err);
    }
  }

  async function show(r) {
    try {
      const one = await get(query("v1/rules", { version: r.version }));
      let diff = null;
      if (r.parent > 0) diff = (await post("v1/rules/diff", { name: `revision ${r.version}`, document: one.document, version: r.parent })).diff;
      fine();
      change.replaceChildren(el("section", { class: "card" }, el("h3", {}, `Revision ${r.version}${diff === null ? "" : ` beside ${r.parent}`}`),
        diff === null ? el("pre", { tabindex: "0", role: "region", "aria-label": "The rules" }, one.document.slice(0, 200_000)) : diffText(diff)));
      change.scrollIntoView({ block: "nearest" });
    } catch (err) {
      fail(err);
    }
  }

  function askBack(r) {
    const wrong = el("p", { class: "bad", role: "alert" });
    const comment = el("input", { name: "comment", type: "text", required: true, autocomplete: "off", ".value": `back to revision ${r.version}` });
    const form = el("form", {
      onsubmit: async (e) => {
        e.preventDefault();
        try {
          const now = await ask("POST", "v1/rules/rollback", { version: r.version, comment: comment.value }, { "If-Match": `"${newest}"` });
          dialog.close();
          say(`Revision ${now.version} is in force`);
          await load(0);
        } catch (err) {
          wrong.textContent = err.message;
        }
      },
    }, el("label", {}, "Why", comment), wrong, el("div", { class: "actions" }, el("button", { class: "main" }, "Confirm"), el("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
    const dialog = el("dialog", { "aria-labelledby": "act-title", onclose: () => dialog.remove() }, el("h2", { id: "act-title" }, `Roll back to revision ${r.version}`),
      el("p", { class: "note" }, `What revision ${r.version} held is published as revision ${newest + 1}. All servers take it at once.`), form);
    document.body.append(dialog);
    dialog.showModal();
  }

  view.replaceChildren(el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, "Revisions"), el("a", { class: "button", href: "#/edit" }, "Edit…")),
    session.publishes ? null : el("p", { class: "note" }, "The rules are in a file, which has no revisions but the one in force. Rules in a database have them all."), t.box, el("div", { class: "actions" }, first, next)), change);
  load(0);
}
