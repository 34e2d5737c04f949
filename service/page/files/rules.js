// The rules in force, and one of them.

import { get, query } from "./api.js";
import { spark } from "./chart.js";
import { el, put, table } from "./dom.js";
import { keyCell, ruleLink } from "./keys.js";
import { ago, many, number, rate } from "./words.js";

const page = 100;

/** ruleList lists rules, a page at a time, found by a part of their name. */
export function ruleList(view, { fail, fine }) {
  const t = table("Rules", [["rule", "word"], ["key", "word"], ["limits", "word"], ["pass/s"], ["denied/s"], ["let pass"], ["denied"]]);
  const found = el("span", { class: "note" });
  const none = el("p", { class: "empty", hidden: true });
  const search = el("input", { id: "search", type: "search", placeholder: "a part of a name", autocomplete: "off" });
  const next = el("button", { type: "button", onclick: () => load(following) }, "Next");
  const first = el("button", { type: "button", onclick: () => load("") }, "First");
  let following = "";
  let turn = 0;
  async function load(after) {
    const mine = ++turn;
    try {
      const a = await get(query("v1/rules/list", { q: search.value, n: page, after }));
      if (mine !== turn) return;
      fine();
      following = a.next ?? "";
      put(found, search.value ? `${number(a.found)} of ${many(a.total, "rule")}` : many(a.total, "rule"));
      none.hidden = a.rules.length > 0;
      put(none, a.total ? "No rule has that in its name." : "There is no rule in force: every request passes.");
      t.box.hidden = a.rules.length === 0;
      t.body.replaceChildren(...a.rules.map((r) => el("tr", {}, el("th", { scope: "row", class: "word wide" }, el("a", { href: ruleLink(r.rule) }, r.rule), r.shadow ? " (shadow)" : ""),
        el("td", { class: "word wide" }, r.key.join(", ") || "all share one"), el("td", { class: "word wide" }, r.limits.join(", ")),
        el("td", {}, rate(r.allowed_per_second)), el("td", {}, rate(r.denied_per_second)), el("td", {}, number(r.allowed)), el("td", {}, number(r.denied)))));
      next.hidden = following === "";
      first.hidden = after === "";
      document.body.dataset.listed = Number(document.body.dataset.listed ?? 0) + 1;
    } catch (err) {
      fail(err);
    }
  }
  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => load(""), 200);
  });
  view.replaceChildren(el("section", { class: "card" },
    el("div", { class: "head" }, el("h2", {}, "Rules"), found,
      el("div", { class: "actions" }, el("a", { class: "button", href: "#/edit" }, "Edit…"), el("a", { class: "button", href: "#/history" }, "Revisions"))),
    el("div", { class: "fields" }, el("label", {}, "Find", search)), none, t.box, el("div", { class: "actions" }, first, next)));
  load("");
  return () => clearTimeout(timer);
}

/** rule shows one rule, again every few seconds. */
export function rule(view, { fail, fine, parameters }) {
  const name = parameters.get("name") ?? "";
  const words = el("ul", { class: "words" });
  const text = el("pre", { tabindex: "0", role: "region", "aria-label": "The rule's text" });
  const traffic = spark(true);
  const figures = el("p", { class: "note" });
  const from = el("span", { class: "note" });
  const denied = table("Denied most under this rule", [["key", "word"], ["denied"], ["last"]]);
  const near = table("Nearest to a limit of this rule", [["key", "word"], ["limit", "word wide"], ["used"], ["now"]]);
  const empty = [el("p", { class: "empty" }, "No key of this rule was denied in the last ten minutes."), el("p", { class: "empty" }, "No key of this rule has used four fifths of a limit.")];
  const edit = el("a", { class: "button", href: `#/edit?${new URLSearchParams({ rule: name })}` }, "Edit…");
  view.replaceChildren(
    el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, "Rule ", el("code", {}, name)), from, edit), words, text),
    el("section", { class: "card" }, el("h3", {}, "What it said"), figures, traffic.svg),
    el("div", { class: "pair" }, el("section", { class: "card" }, el("h3", {}, "Denied most"), empty[0], denied.box), el("section", { class: "card" }, el("h3", {}, "Nearest to a limit"), empty[1], near.box)));
  let shown = "";
  let timer = 0;
  let ended = false;
  async function look() {
    try {
      const [r, h] = await Promise.all([get(query("v1/rule", { rule: name, n: 10 })), get(query("hour", { rule: name }))]);
      if (ended) return;
      fine();
      put(from, `line ${r.line} of ${r.version.name.split("/").at(-1)}${r.version.revision ? `, revision ${r.version.revision}` : ""}`);
      edit.href = `#/edit?${new URLSearchParams({ line: r.line })}`;
      put(text, r.text);
      text.hidden = !r.text;
      const said = r.words.join("\n");
      if (said !== shown) words.replaceChildren(...r.words.map((w) => el("li", {}, w)));
      shown = said;
      put(figures, `${r.in_flight === undefined ? "" : `${number(r.in_flight)} in flight in this process; `}${rate(r.allowed_per_second)} pass a second, ${rate(r.denied_per_second)} are denied; since the start it let ${number(r.allowed)} pass and denied ${number(r.denied)}${r.shadow_denied ? `, and ${number(r.shadow_denied)} would have been` : ""}. The last hour, minute by minute:`);
      traffic.set(h);
      rows(denied, empty[0], r.denied_keys, (k) => [number(k.count), ago(k.last)]);
      rows(near, empty[1], r.nearest, (k) => [k.limit, number(k.used), `${Math.round(k.part * 100)} %`]);
      document.body.dataset.told = Number(document.body.dataset.told ?? 0) + 1;
    } catch (err) {
      if (!ended) fail(err);
      return;
    }
    timer = setTimeout(look, 5000);
  }
  function rows(t, none, keys, texts) {
    none.hidden = keys.length > 0;
    t.box.hidden = keys.length === 0;
    if (t.body.contains(document.activeElement)) return; // do not move a button that is about to be pressed
    t.body.replaceChildren(...keys.map((k) => el("tr", {}, el("td", { class: "word wide" }, keyCell(k, fail)), ...texts(k).map((x, i) => el("td", { class: t.heads[i + 1][1] }, x)))));
  }
  look();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}

