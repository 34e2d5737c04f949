// The text of rules, to change: what is wrong stands at its line, what a field
// means beside it; then compared, rehearsed and published.

import { ask, get, post } from "./api.js";
import { byID, el, put, say } from "./dom.js";
import { diffText } from "./history.js";
import { help } from "./help.js";
import { rehearse } from "./rehearsal.js";
import { may, session } from "./session.js";
import { many } from "./words.js";

const soon = 400; // ms after the last key

/** editor shows the rules in force, to change. */
export function editor(view, { fail, fine, parameters }) {
  const gutter = el("pre", { class: "gutter", "aria-hidden": "true" });
  const area = el("textarea", { id: "document", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", "aria-label": "Rules", "aria-describedby": "verdict" });
  const verdict = el("p", { id: "verdict", class: "note", role: "status" });
  const faults = el("ul", { class: "faults" });
  const aside = el("section", { class: "card help", tabindex: "0", "aria-label": "What the field means" });
  const result = el("div", { id: "result" });
  const publish = el("button", { type: "button", class: "main", disabled: true, onclick: askPublish }, "Publish…");
  const buttons = [el("button", { type: "button", onclick: compare }, "Compare"),
    session.rehearses && el("button", { type: "button", onclick: () => rehearse(result, { name, document: area.value }, fail) }, "Rehearse"),
    session.publishes && may("admin") && publish];
  view.replaceChildren(
    el("div", { class: "head" }, el("h2", {}, "Edit rules"), el("span", { class: "note", id: "base" }), el("div", { class: "actions" }, ...buttons.filter(Boolean), el("a", { class: "button", href: "#/history" }, "Revisions"))),
    el("div", { class: "edit" }, el("div", { class: "card sheet" }, el("div", { class: "paper" }, gutter, area)), aside),
    el("section", { class: "card", "aria-label": "What is wrong" }, verdict, faults),
    result);
  if (!session.publishes) {
    result.append(el("p", { class: "note" }, "The rules are in a file: put the text there when it is as you want it, and the server reads it again. Rules in a database are published here."));
  }
  let base = 0; // the revision that was changed
  let name = "stint.yaml";
  let start = "";
  let timer = 0;
  let lines = 0;
  let wrong = new Map();
  let ended = false;
  const helps = help(aside, fail);

  function number() {
    const n = area.value.split("\n").length;
    if (n === lines && wrong.size === 0 && gutter.dataset.wrong === "") return;
    lines = n;
    gutter.dataset.wrong = [...wrong.keys()].join();
    const parts = [];
    let from = 1;
    const plain = (to) => { // numbers up to a line, as one text
      let text = "";
      for (; from < to; from++) text += `${from}\n`;
      if (text) parts.push(text);
    };
    for (const [line, kind] of [...wrong].sort((a, b) => a[0] - b[0])) {
      if (line < from || line > n) continue;
      plain(line);
      parts.push(el("span", { class: kind }, `${line}\n`));
      from = line + 1;
    }
    plain(n + 1);
    gutter.replaceChildren(...parts);
  }

  const follow = () => (gutter.scrollTop = area.scrollTop);
  const goTo = (line, column = 1) => {
    const at = area.value.split("\n").slice(0, line - 1).reduce((sum, l) => sum + l.length + 1, 0) + column - 1;
    area.focus();
    area.setSelectionRange(at, at);
    area.scrollTop = Math.max(0, (line - 6) * parseFloat(getComputedStyle(area).lineHeight));
    follow();
  };

  let turn = 0;
  async function check() {
    const mine = ++turn;
    try {
      const v = await post("v1/rules/validate", { name, document: area.value });
      if (ended || mine !== turn) return;
      fine();
      put(verdict, v.valid ? `Good: ${many(v.rules, "rule")}${v.warnings.length ? `, ${many(v.warnings.length, "warning")}` : ""}.` : `${many(v.errors.length, "error")}.`);
      verdict.className = v.valid ? "good" : "bad";
      wrong = new Map([...v.warnings.map((w) => [w.line, "warned"]), ...v.errors.map((e) => [e.line, "wrong"])].filter(([line]) => line > 0));
      const entry = (f, kind) => el("li", { class: kind }, f.line ? el("button", { type: "button", onclick: () => goTo(f.line, f.column) }, `line ${f.line}`) : null,
        ` ${f.rule ? `${f.rule}: ` : ""}${f.reason}`, f.hint ? el("span", { class: "note" }, ` ${f.hint}`) : null);
      faults.replaceChildren(...v.errors.slice(0, 20).map((f) => entry(f, "wrong")), ...v.warnings.slice(0, 20).map((f) => entry(f, "warned")));
      area.setAttribute("aria-invalid", String(!v.valid));
      number();
      publish.disabled = !v.valid || area.value === start;
      document.body.dataset.checked = Number(document.body.dataset.checked ?? 0) + 1;
    } catch (err) {
      if (!ended) fail(err);
    }
  }

  async function compare() {
    try {
      const d = await post("v1/rules/diff", { name, document: area.value });
      result.replaceChildren(el("section", { class: "card" }, el("h3", {}, session.publishes ? `Beside revision ${d.version}` : "Beside the rules in force"), diffText(d.diff)));
    } catch (err) {
      fail(err);
    }
  }

  function askPublish() {
    const wrongPublish = el("p", { class: "bad", role: "alert" });
    const comment = el("input", { name: "comment", type: "text", required: true, autocomplete: "off" });
    const form = el("form", {
      onsubmit: async (e) => {
        e.preventDefault();
        try {
          const r = await ask("POST", "v1/rules", { name, document: area.value, comment: comment.value }, { "If-Match": `"${base}"` });
          dialog.close();
          [base, start] = [r.version, area.value];
          publish.disabled = true;
          based();
          say(`Revision ${r.version} is in force`);
          result.replaceChildren(el("section", { class: "card" }, el("p", { class: "good", id: "published" }, `Revision ${r.version} is in force.`),
            el("p", { class: "note" }, "Nodes take it within moments; the overview shows which has what. ", el("a", { href: "#/history" }, "Revisions"), " go back.")));
        } catch (err) {
          wrongPublish.textContent = err.status === 412 ? "Somebody else has published meanwhile. Keep your text, compare it with what is in force now, and open this page anew." : err.message;
        }
      },
    }, el("label", {}, "What changes, and why", comment), wrongPublish,
    el("div", { class: "actions" }, el("button", { class: "main" }, "Confirm"), el("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
    const dialog = el("dialog", { "aria-labelledby": "act-title", onclose: () => dialog.remove() }, el("h2", { id: "act-title" }, `Publish revision ${base + 1}`),
      el("p", { class: "note" }, "All servers that follow the database take it at once."), form);
    document.body.append(dialog);
    dialog.showModal();
  }

  const based = () => put(byID("base"), session.publishes ? `from revision ${base}` : `from ${name}`);

  area.addEventListener("input", () => {
    number();
    clearTimeout(timer);
    timer = setTimeout(check, soon);
  });
  area.addEventListener("scroll", follow);
  const moved = () => document.activeElement === area && helps(area.value, area.selectionStart);
  document.addEventListener("selectionchange", moved);

  (async () => {
    try {
      const r = await get("v1/rules").catch((err) => {
        if (err.status === 404) return { version: 0, name: "stint.yaml", document: "rules:\n" }; // the first
        throw err;
      });
      if (ended) return;
      [base, name, start] = [r.version, r.name.split("/").at(-1), r.document];
      area.value = start;
      based();
      number();
      await check();
      if (parameters.get("line")) goTo(Number(parameters.get("line")));
    } catch (err) {
      fail(err);
    }
  })();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("selectionchange", moved);
  };
}
