// What other rules would have done to the requests of the last minutes.

import { post } from "./api.js";
import { el, table } from "./dom.js";
import { may } from "./session.js";
import { number, when } from "./words.js";

/** rehearse asks for a rehearsal and shows it. */
export async function rehearse(node, asked, fail, names = false) {
  node.replaceChildren(el("section", { class: "card" }, el("p", { role: "status" }, "Rehearsing on the requests of the last minutes…")));
  let r;
  try {
    r = await post("v1/rehearse", { ...asked, names });
  } catch (err) {
    node.replaceChildren(el("section", { class: "card" }, el("p", { class: "bad", id: "rehearsed", role: "alert" }, err.message)));
    return;
  }
  const before = (c) => `${number(c.before)} → ${number(c.after)}`;
  const share = r.newly_denied_share > 0 ? ` (${(r.newly_denied_share * 100).toPrecision(2)} %)` : "";
  const rules = table("By rule", [["rule", "word"], ["denied"], ["newly denied"], ["newly pass"]], ...r.rules.filter((o) => o.denied.before || o.denied.after || o.newly_denied || o.newly_passed).slice(0, 100).map((o) =>
    el("tr", {}, el("th", { scope: "row", class: "word" }, o.rule), el("td", {}, before(o.denied)), el("td", {}, number(o.newly_denied)), el("td", {}, number(o.newly_passed)))));
  const keys = (title, all, count) => all.length ? table(title, [["key", "word"], ["rule", "word"], ["denied"], [title.toLowerCase()], ["first"]], ...all.map((k) =>
    el("tr", {}, el("td", { class: "word wide" }, k.key !== undefined ? k.key : el("code", {}, (k.key_hash ?? "").slice(0, 16))), el("td", { class: "word" }, k.rule), el("td", {}, before(k.denied)), el("td", {}, number(count(k))), el("td", {}, when(k.first))))).box : null;
  const denied = keys("Newly denied", r.newly_denied_keys, (k) => k.newly_denied);
  const passed = keys("Newly pass", r.newly_passed_keys, (k) => k.newly_passed);
  node.replaceChildren(el("section", { class: "card", id: "rehearsed" },
    el("div", { class: "head" }, el("h3", {}, "Rehearsal"), el("span", { class: "note" }, `${number(r.requests)} requests, ${when(r.from)} to ${when(r.to)}; ${r.state}`),
      (denied || passed) && !names && may("operator") && el("button", { type: "button", onclick: () => rehearse(node, asked, fail, true) }, "Show keys")),
    el("dl", { class: "figures" },
      ...[["newly denied" + share, r.newly_denied], ["newly pass", r.newly_passed], ["keys newly denied", r.keys_newly_denied], ["keys that newly pass", r.keys_newly_passed]].map(([label, n]) =>
        el("div", {}, el("dt", {}, label), el("dd", { class: label.includes("denied") && n ? "bad" : undefined }, number(n)))),
      el("div", {}, el("dt", {}, "denied, before and after"), el("dd", {}, before(r.denied)))),
    over(r.over_time),
    rules.body.children.length ? rules.box : el("p", { class: "empty" }, "Neither the rules in force nor these would have denied one of them."),
    denied, passed,
    ...[...(r.missing ?? []).map((a) => `${a} was not recorded: it is taken as missing.`), ...(r.unsure ?? []), ...(r.notes ?? [])].map((t) => el("p", { class: "note" }, t))));
}

// over draws what is newly denied over time, above what newly passes.
function over(t) {
  const most = Math.max(1, ...t.newly_denied, ...t.newly_passed);
  const n = t.newly_denied.length;
  if (![...t.newly_denied, ...t.newly_passed].some(Boolean)) return null;
  const bars = (values, up) => values.map((v, i) => (v ? `M${i * 10} ${up ? 40 - (v / most) * 38 : 41}h9v${(v / most) * 38}h-9z` : "")).join("");
  return el("div", {}, el("svg", { class: "over-time", viewBox: `0 0 ${n * 10} 80`, preserveAspectRatio: "none", role: "img", "aria-label": `In columns of ${t.column}: newly denied above the line, newly passing below it` },
    el("path", { class: "denied", d: bars(t.newly_denied, true) }), el("path", { class: "passed", d: bars(t.newly_passed, false) })),
  el("p", { class: "note" }, `Columns of ${t.column}: above what is newly denied, below what newly passes.`));
}
