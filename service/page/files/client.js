// The story of one client: how it stands under each rule, why, and what can be
// done about it.

import { actCells, actHeads, actions, audit } from "./acts.js";
import { post } from "./api.js";
import { el, keep, put, table } from "./dom.js";
import { ruleLink } from "./keys.js";
import { may, session } from "./session.js";
import { ago, but, many, when } from "./words.js";

const every = 3000; // ms between looks
const mostPairs = 8;
const mostRules = 100;

/** client shows the form, and the story of the client that the address names. */
export function client(view, { fail, fine, parameters }) {
  const asked = [...parameters].filter(([name, value]) => name && value);
  const story = el("div", { class: "story" });
  view.replaceChildren(el("div", { class: "head" }, el("h2", {}, "One client")), form(asked), story);
  if (asked.length === 0) {
    story.append(el("p", { class: "empty" }, "Write what you know of a client, such as its address or its API key. The page says under which rules it is held, what it has used, whether it is denied and why. Nothing is charged."));
    return undefined;
  }
  return tell(story, Object.fromEntries(asked), fail, fine);
}

function form(asked) {
  const pairs = el("div", { class: "pairs" });
  const add = (name = "", value = "") => {
    if (pairs.children.length >= mostPairs) return;
    pairs.append(el("div", { class: "fields" },
      el("label", {}, "Attribute", el("input", { name: "name", type: "text", list: "attributes", ".value": name, required: true, spellcheck: "false", autocomplete: "off" })),
      el("label", { class: "grow" }, "Value", el("input", { name: "value", type: "text", ".value": value, required: true, spellcheck: "false", autocomplete: "off" }))));
  };
  if (asked.length) asked.slice(0, mostPairs).forEach(([name, value]) => add(name, value));
  else add(session.attributes?.find((a) => a === "ip" || a.startsWith("header.")) ?? "ip");
  return el("form", {
    class: "card", "aria-label": "A client", autocomplete: "off",
    onsubmit: (e) => {
      e.preventDefault();
      const data = new FormData(e.target);
      const values = data.getAll("value");
      const all = new URLSearchParams(data.getAll("name").map((name, i) => [name.trim(), values[i]]));
      if (location.hash === `#/client?${all}`) dispatchEvent(new Event("hashchange"));
      else location.hash = `#/client?${all}`;
    },
  }, pairs, el("datalist", { id: "attributes" }, ...(session.attributes ?? []).map((a) => el("option", { value: a }))),
  el("div", { class: "actions" }, el("button", { class: "main" }, "Look"), el("button", { type: "button", onclick: () => add() }, "Add an attribute")));
}

// tell looks again and again, until what it returns is called.
function tell(node, attributes, fail, fine) {
  const verdict = el("p", { class: "verdict" });
  const rules = el("div", { class: "rules" });
  const left = el("p", { class: "note" });
  const acts = may("operator") ? history(fail, () => look(true)) : null;
  node.append(el("section", { class: "card" }, verdict, left), rules, ...(acts ? [acts.node] : []));
  const cards = new WeakMap();
  let timer = 0;
  let ended = false;

  async function look(acted = false) {
    clearTimeout(timer);
    let s;
    try {
      s = await post("v1/inspect", { attributes });
    } catch (err) {
      if (!ended) fail(err);
      return;
    }
    if (ended) return;
    fine();
    put(verdict, s.verdict);
    verdict.className = `verdict ${/^(Denied|Refused)/.test(s.verdict) || s.rules.some((r) => r.unknown && !r.shadow) ? "bad" : "good"}`;
    const notKnown = s.left_out.slice(0, 5).map((l) => `${l.rule} (${l.missing.join(", ")})`).join("; ");
    put(left, `Rules of ${s.version.name.split("/").at(-1)}${s.version.revision ? `, revision ${s.version.revision}` : ""}.` +
      (notKnown ? ` Not known, for want of an attribute: ${notKnown}${s.left_out.length > 5 ? ` and ${s.left_out.length - 5} more` : ""}.` : "") +
      (s.rules.length > mostRules || s.more ? ` The first ${mostRules} rules are shown.` : ""));
    keep(rules, s.rules.slice(0, mostRules), (r) => `${r.rule} ${r.key_hash}`, (r) => {
      const c = card(r, () => look(true));
      cards.set(c.node, c);
      return c.node;
    }, (e, r) => cards.get(e).set(r));
    if (acted) await acts?.set(s.rules);
    if (ended) return;
    clearTimeout(timer);
    document.body.dataset.told = Number(document.body.dataset.told ?? 0) + 1;
    timer = setTimeout(() => document.visibilityState === "visible" ? look() : again(), every);
  }

  function again() {
    document.addEventListener("visibilitychange", () => !ended && look(), { once: true });
  }

  look(true);
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}

// card is how the client stands under one rule.
function card(r, done) {
  const tag = el("span", { class: "tag" });
  const why = el("p", { class: "note" });
  const limits = el("ul", { class: "limits" });
  const override = el("p", {});
  const denials = el("p", { class: "note" });
  const buttons = actions(done);
  const node = el("section", { class: "card", "aria-label": `Rule ${r.rule}` },
    el("div", { class: "head" }, el("h3", {}, session.rules ? el("a", { href: ruleLink(r.rule) }, r.rule) : r.rule), tag,
      el("span", { class: "note" }, r.key || r.key_base64 ? "key " : "one key for all", r.key ? el("code", {}, r.key) : r.key_base64 ? "(no text)" : "", ", in logs ", el("code", {}, r.key_hash))),
    why, limits, override, denials, buttons.node);
  return {
    node,
    set(r) {
      put(tag, r.denied ? (r.shadow ? "would be denied: shadow" : r.where?.length ? "may be denied" : "denied") : r.unknown ? "not known" : r.reserve_only ? "refused unless reserved" : r.shadow ? "shadow" : "passes");
      tag.className = `tag ${r.denied || r.unknown || r.reserve_only ? "bad" : "good"}`;
      put(why, `${r.why}${r.where?.length ? `; where ${r.where.join(", ")}` : ""}${r.ends ? `; ${r.where?.length ? "where it matches, " : ""}no rule after it is tried` : ""}${r.store_error ? `. The store: ${r.store_error}` : ""}`);
      keep(limits, r.limits, (l) => `${l.label} ${l.variant ?? ""}`, meter, (e, l) => {
        const share = l.capacity > 0 && l.used !== null ? Math.min(100, (l.used / l.capacity) * 100) : l.denied ? 100 : 0;
        e.querySelector("rect").setAttribute("width", `${share}%`);
        e.querySelector("rect").setAttribute("class", l.denied ? "denied" : "passed");
        put(e.querySelector("code"), l.limit);
        put(e.lastElementChild, l.words);
      });
      const o = r.override;
      override.hidden = !o;
      if (o) put(override, `${o.block ? "Blocked" : `Has ${o.unlimited ? "no limit" : o.limits?.join(", ") ?? "limits"} of its own`}${o.author ? `, by ${o.author}` : ""}${o.at ? ` at ${when(o.at)}` : ""}${o.expires ? `, until ${when(o.expires)}` : o.author ? ", for good" : ""}${o.reason ? `: ${o.reason}` : ""}${but(o)}`);
      denials.hidden = !r.denials;
      if (r.denials) put(denials, `Denied ${many(r.denials.count, "time")} in the last ten minutes${r.denials.over ? `, of which ${r.denials.over} may be of others` : ""}: since ${when(r.denials.since)}, last ${ago(r.denials.last)}.`);
      buttons.set(r);
    },
  };
}

const meter = () => el("li", {}, el("code", {}), el("svg", { class: "meter", "aria-hidden": "true" }, el("rect", { height: "100%", width: "0" })), el("span", {}));

// history are the acts on the client, with what takes them back.
function history(fail, done) {
  const t = table("Acts on this client", actHeads);
  const node = el("section", { class: "card", hidden: true }, el("h3", {}, "What was done to this client"), t.box);
  return {
    node,
    async set(rules) {
      const mine = new Set(rules.map((r) => `${r.rule} ${r.key_hash}`));
      try {
        const acts = (await audit(0, 200)).filter((a) => mine.has(`${a.rule} ${a.key_hash}`)).slice(0, 10);
        node.hidden = acts.length === 0;
        keep(t.body, acts, (a) => `${a.number} ${a.undoable}`, (a) => el("tr", {}, ...actCells(a, done)), () => {});
      } catch (err) {
        fail(err);
      }
    },
  };
}
