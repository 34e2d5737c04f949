// What passes and what is denied, now and in the last hour or day.

import { chart, legend, spark } from "./chart.js";
import { el, keep, put, table } from "./dom.js";
import { keyCell, ruleLink } from "./keys.js";
import { watch } from "./live.js";
import { session } from "./session.js";
import { ago, bytes, many, number, rate } from "./words.js";

/** overview shows what is going on until what it returns is called. */
export function overview(view, { fail }) {
  let last = null;
  let range = "hour";
  const draw = () => {
    for (const part of parts) part.set({ now: last.now, range, history: last[range] });
  };
  const pick = (e) => {
    range = e.target.value;
    if (last) draw();
  };
  const parts = [figures(), past(pick), rules(), keysDenied(fail), keysNear(fail), stores(), nodes()];
  const [f, h, r, d, n, s, o] = parts;
  view.replaceChildren(f.node, h.node, r.node, el("div", { class: "pair" }, d.node, n.node), el("div", { class: "pair" }, s.node, o.node));
  return watch((all) => {
    last = all;
    draw();
    document.body.dataset.drawn = Number(document.body.dataset.drawn ?? 0) + 1;
  });
}

const card = (title, ...more) => el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, title)), ...more);

function figures() {
  const values = {};
  const list = el("dl", { class: "figures" });
  for (const [name, label, kind] of [["allowed", "pass a second"], ["denied", "denied a second"], ["rules", "rules in force"], ["version", "from", "text"], ["state", "this server", "text"]]) {
    values[name] = el("dd", { class: kind }, "–");
    list.append(el("div", {}, el("dt", {}, label), values[name]));
  }
  const trouble = el("p", { class: "bad", hidden: true });
  return {
    node: el("section", { class: "card", "aria-label": "Now" }, list, trouble),
    set({ now }) {
      put(values.allowed, rate(now.allowed_per_second));
      put(values.denied, rate(now.denied_per_second));
      put(values.rules, number(now.rules_in_force));
      put(values.version, (now.version.revision ? `revision ${now.version.revision}, ` : "") + now.version.name.split("/").at(-1));
      const wrong = now.not_ready || now.version.problem || now.nodes_error || "";
      put(values.state, now.not_ready ? "not ready" : wrong ? "in trouble" : "ready");
      values.state.className = `text ${wrong ? "bad" : "good"}`;
      put(trouble, wrong);
      trouble.hidden = wrong === "";
    },
  };
}

function past(pick) {
  const c = chart("Requests");
  const none = el("p", { class: "empty", hidden: true }, "No request was decided in this time. Programs ask ", el("code", {}, "POST /v1/check"),
    ", nginx and its like ", el("code", {}, "GET /auth"), ", Envoy by gRPC; ", el("code", {}, "stint proxy"), " decides what passes through it.");
  const node = card("Requests", none, c.node);
  node.firstElementChild.append(el("label", {}, "in the last ", el("select", { id: "range", onchange: pick }, el("option", {}, "hour"), el("option", {}, "day"))), legend());
  return {
    node,
    set({ history: h }) {
      const some = h.allowed.some(Boolean) || h.denied.some(Boolean);
      none.hidden = some;
      c.node.hidden = !some;
      if (some) c.set(h);
    },
  };
}

function rules() {
  const t = table("Rules of that time", [["rule", "word"], ["pass/s"], ["denied/s"], ["let pass"], ["denied"], ["in that time"]]);
  const none = el("p", { class: "empty", hidden: true }, "No rule has held a request in that time.");
  const others = el("p", { class: "note" });
  const cells = new WeakMap();
  const make = ({ rule }) => {
    const c = { name: session.rules ? el("a", { href: ruleLink(rule) }, rule) : el("span", {}, rule), spark: spark(), numbers: [0, 1, 2, 3].map(() => el("td")) };
    const tr = el("tr", {}, el("th", { scope: "row", class: "word" }, c.name), ...c.numbers, el("td", {}, c.spark.svg));
    cells.set(tr, c);
    return tr;
  };
  const node = card("Rules", none, t.box, others);
  return {
    node,
    set({ now, range, history: h }) {
      const counts = new Map(now.rules.map((r) => [r.rule, r]));
      none.hidden = h.rules.length > 0;
      t.box.hidden = h.rules.length === 0;
      put(others, h.others ? `and ${many(h.others, "rule")} more that said something` : "");
      keep(t.body, h.rules, (r) => r.rule, make, (tr, r) => {
        const c = cells.get(tr);
        const n = counts.get(r.rule);
        if (n) [rate(n.allowed_per_second), rate(n.denied_per_second), number(n.allowed), number(n.denied)].forEach((text, i) => put(c.numbers[i], text));
        c.spark.set(r, range);
      });
    },
  };
}

// keyTable is a table of keys, of which each row stays what it is.
function keyTable(title, heads, empty, fail, items, texts) {
  const t = table(title, [["key", "word"], ["rule", "word"], ...heads]);
  const none = el("p", { class: "empty", hidden: true }, ...empty); // nothing is known before the first answer
  const make = (k) => el("tr", {}, el("td", { class: "word wide" }, keyCell(k, fail)),
    el("td", { class: "word" }, session.rules ? el("a", { href: ruleLink(k.rule) }, k.rule) : k.rule), ...heads.map(([, kind]) => el("td", { class: kind })));
  return {
    node: card(title, none, t.box),
    set(last) {
      const all = items(last);
      none.hidden = all.length > 0;
      t.box.hidden = all.length === 0;
      keep(t.body, all, (k) => `${k.rule} ${k.key_hash} ${k.limit ?? ""}`, make, (tr, k) => texts(k).forEach((text, i) => put(tr.children[i + 2], text)));
    },
  };
}

const keysDenied = (fail) => keyTable("Denied most", [["denied"], ["last"]],
  ["No key was denied in the last ten minutes."], fail, ({ now }) => now.denied,
  (k) => [number(k.count) + (k.over ? ` (at least ${number(k.count - k.over)})` : ""), ago(k.last)]);

const keysNear = (fail) => keyTable("Nearest to a limit", [["limit", "word"], ["used"], ["now"]],
  ["No key has used four fifths of a limit."], fail, ({ now }) => now.nearest,
  (k) => [k.limit, number(k.used), `${Math.round(k.part * 100)} %`]);

function stores() {
  const t = table("Stores", [["store", "word"], ["keys"], ["memory"], ["calls"], ["mean"], ["99 in 100"], ["failures"]]);
  return {
    node: card("Stores", t.box),
    set({ now }) {
      keep(t.body, now.stores ?? [], (s) => s.store, () => el("tr", {}, el("th", { scope: "row", class: "word" }), el("td", { class: "wide" }), ...[0, 1, 2, 3, 4].map(() => el("td"))), (tr, s) => {
        const memory = s.max_keys > 0;
        [s.store + (s.open ? " (asks no more, for now)" : ""), memory ? `${number(s.keys ?? 0)} of ${number(s.max_keys)}` : "", memory ? bytes(s.bytes ?? 0) : "",
          s.calls ? number(s.calls) : "", s.calls ? `${s.mean_ms.toFixed(1)} ms` : "", s.calls ? `${s.p99_ms.toFixed(1)} ms` : "", s.failures ? number(s.failures) : memory ? "" : "0"]
          .forEach((text, i) => put(tr.children[i], text));
      });
    },
  };
}

function nodes() {
  const t = table("Nodes", [["node", "word"], ["rules"], ["lag"], ["seen"], ["says", "word"]]);
  const none = el("p", { class: "empty", hidden: true }, "No node is known.");
  return {
    node: card("Nodes", none, t.box),
    set({ now }) {
      none.hidden = now.nodes.length > 0;
      t.box.hidden = now.nodes.length === 0;
      fillNodes(t.body, now.nodes.slice(0, 20));
    },
  };
}

/** fillNodes fills a table of nodes: which revision each has, and how far it is behind the newest. */
export function fillNodes(body, all) {
  const newest = all.reduce((n, o) => Math.max(n, o.version), 0);
  const changes = all.reduce((n, o) => Math.max(n, o.change), 0);
  keep(body, all, (o) => o.node, () => el("tr", {}, el("th", { scope: "row", class: "word" }), el("td"), el("td"), el("td"), el("td", { class: "word wide" })), (tr, o) => {
    const behind = newest - o.version;
    const lag = behind ? many(behind, "revision") : o.change < changes ? many(changes - o.change, "change") : "none";
    [o.node, `${o.version}`, lag, ago(o.seen), o.error || "ok"].forEach((text, i) => put(tr.children[i], text));
    tr.children[2].classList.toggle("bad", lag !== "none");
    tr.children[4].classList.toggle("bad", Boolean(o.error));
  });
}

