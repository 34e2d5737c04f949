// Lists: overrides and blocks, who is blocked now, the audit, nodes.

import { actCells, actHeads, audit } from "./acts.js";
import { get, query } from "./api.js";
import { el, long, table } from "./dom.js";
import { keyCell, ruleLink } from "./keys.js";
import { fillNodes } from "./overview.js";
import { but, number, when } from "./words.js";

const page = 50;

// pages shows a list page by page: load returns the rows of one and where the next
// begins. One page is there at a time, however long the list is.
function pages(view, { title, heads, empty, load, before = [] }, { fail, fine }) {
  const t = table(title, heads);
  const none = el("div", { class: "empty", hidden: true }, ...empty);
  const next = el("button", { type: "button", onclick: () => turn(following) }, "Next");
  const first = el("button", { type: "button", onclick: () => turn("") }, "First");
  let following = "";
  let here = "";
  async function turn(from) {
    try {
      const { rows, next: more } = await load(from, () => turn(here));
      fine();
      here = from;
      following = more ?? "";
      t.body.replaceChildren(...rows);
      none.hidden = rows.length > 0;
      t.box.hidden = rows.length === 0;
      next.hidden = following === "";
      first.hidden = from === "";
      document.body.dataset.listed = Number(document.body.dataset.listed ?? 0) + 1;
    } catch (err) {
      fail(err);
    }
  }
  view.append(el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, title)), ...before, none, t.box, el("div", { class: "actions" }, first, next)));
  turn("");
  return () => turn(here);
}

/** overrides lists who is blocked now, and overrides. */
export function overrides(view, page_) {
  view.replaceChildren();
  pages(view, {
    title: "Denied now",
    heads: [["key", "word"], ["rule", "word"], ["why", "word"], ["until"], ["denied, 10 min"], ["by", "word"], ["reason", "word"]],
    empty: ["Nobody is denied now, as far as is known: a limit that is used up, or a block, would be here."],
    async load(from) {
      const a = await get(query("v1/blocked", { n: page, after: from }));
      return { next: a.next, rows: a.blocked.map((b) => el("tr", {}, el("td", { class: "word wide" }, keyCell(b, page_.fail)), rule(b.rule),
        el("td", { class: "word wide" }, ({ block: "block", ban: "ban", never: "can never pass" }[b.why] ?? "limit") + but(b)), el("td", {}, b.until ? when(b.until) : "for good"), el("td", {}, number(b.count)),
        el("td", { class: "word" }, b.author ?? ""), el("td", { class: "word wide" }, long(b.reason ?? "")))) };
    },
  }, page_);
  pages(view, {
    title: "Overrides and blocks",
    heads: [["key", "word"], ["rule", "word"], ["has", "word"], ["since"], ["until"], ["by", "word"], ["reason", "word"]],
    empty: ["No client has limits of its own. ", el("a", { href: "#/client" }, "Look at a client"), " to raise its limits, or to block it."],
    async load(from) {
      const a = await get(query("v1/overrides", { n: page, after: from }));
      return { next: a.next, rows: a.overrides.map((o) => el("tr", {}, el("td", { class: "word wide" }, keyCell(o, page_.fail)), rule(o.rule),
        el("td", { class: "word wide" }, long((o.block ? "block" : o.unlimited ? "no limit" : o.limits.join(", ")) + but(o))), el("td", {}, when(o.at)), el("td", {}, o.expires ? when(o.expires) : "for good"),
        el("td", { class: "word" }, o.author ?? ""), el("td", { class: "word wide" }, long(o.reason ?? "")))) };
    },
  }, page_);
}

const rule = (name) => el("td", { class: "word wide" }, el("a", { href: ruleLink(name) }, name));

/** auditLog lists who did what. */
export function auditLog(view, page_) {
  view.replaceChildren();
  const heads = [...actHeads.slice(0, 4), ["to", "word"], ...actHeads.slice(4)];
  const later = { undone: new Set(), held: new Map() };
  pages(view, {
    title: "Audit", heads, empty: ["Nothing was done yet."],
    async load(from, again) {
      const acts = await audit(from, page, later);
      return { next: acts.length === page ? String(acts.at(-1).number) : "", rows: acts.map((a) => {
        const cells = actCells(a, again);
        cells.splice(4, 0, el("td", { class: "word wide" }, a.rule ? el("span", { class: "key" }, el("a", { href: ruleLink(a.rule) }, a.rule), keyCell(a, page_.fail)) : long(a.subject)));
        return el("tr", {}, ...cells);
      }) };
    },
  }, page_);
}

/** nodeList lists the nodes. */
export function nodeList(view, page_) {
  const t = table("Nodes", [["node", "word"], ["rules"], ["lag"], ["seen"], ["says", "word"]]);
  const none = el("p", { class: "empty", hidden: true }, "No node has written to the database in the last ten minutes.");
  view.replaceChildren(el("section", { class: "card" }, el("h2", {}, "Nodes"), none, t.box));
  let timer = 0;
  let ended = false;
  async function look() {
    try {
      const { nodes } = await get("v1/nodes");
      if (ended) return;
      none.hidden = nodes.length > 0;
      fillNodes(t.body, nodes.slice(0, 1000));
    } catch (err) {
      if (!ended) page_.fail(err);
      return;
    }
    timer = setTimeout(look, 5000);
  }
  look();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}
