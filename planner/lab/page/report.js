// What a log said: what to choose and whom that denies, then what it rests on.

import { pasted } from "./copy.js";
import { el } from "./dom.js";
import { axis, left, sheet } from "./paint.js";
import { about, number, parseDuration } from "./words.js";

/** report makes the elements of a report; paint draws them. page has what it asks. */
export function report(r, page) {
  const canvas = el("canvas", { role: "img" });
  const close = el("button", { type: "button", id: "report-close" }, "Close");
  close.addEventListener("click", page.close);
  const { log } = r;
  const [file] = log.files;
  const nodes = [
    el("div", { class: "bar" }, el("h2", { id: "report-title" }, file.name),
      el("span", { class: "title" }, `${file.format}, ${count(log.lines, "line")}`), el("span", { class: "actions" }, close)),
    ...found(r),
    ...doubtful(r, file),
  ];
  const cliff = el("canvas", { role: "img" });
  const steps = r.choice?.cliff?.steps ?? [];
  if (log.requests > 0) {
    if (r.choice) nodes.push(choice(r.choice, page));
    if (steps.length > 1) nodes.push(falls(r.choice.cliff, cliff));
    nodes.push(would(r));
    if (r.traffic) nodes.push(happened(r, canvas, page));
    nodes.push(timeline(r, page));
  } else nodes.push(el("p", {}, "There are no requests in it."));
  return {
    nodes,
    paint() {
      if (log.requests > 0 && r.traffic) paintBars(canvas, r.traffic, page.colours());
      if (log.requests > 0 && steps.length > 1) paintSteps(cliff, steps, page.colours());
    },
  };
}

const count = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

const percent = (part, of) => (of === 0 ? "0%" : `${Number(((100 * part) / of).toPrecision(2))}%`);

const clock = (options) => new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", hourCycle: "h23", ...options });
const long = clock({ weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const moment = (rfc) => `${long.format(new Date(rfc)).replaceAll(",", "")} UTC`;

// found says what one must know of the log before one believes the rest.
function found(r) {
  return r.findings.map((f) => el("p", { class: f.stops ? "error" : "note" }, `${f.stops ? "No proposal: " : ""}${f.text}.`));
}

// doubtful says what of the log was not read as it stands.
function doubtful(r, file) {
  const { log } = r;
  const out = [];
  if (log.interrupted) out.push(el("p", { class: "error" }, "This took too long and was ended: the report is of the first part of the log."));
  if (file.error) out.push(el("p", { class: "error" }, `Not read to its end: ${file.error}.`));
  if (log.bad > 0) {
    out.push(el("details", { class: "bad" }, el("summary", {}, `${count(log.bad, "line")} could not be read (${percent(log.bad, log.lines)})`),
      el("ul", {}, ...log.bad_examples.map((b) => el("li", {}, el("code", {}, b))))));
  }
  for (const [name, n] of Object.entries(log.missing)) out.push(el("p", { class: "note" }, `${count(n, "request")} had no ${name}${r.key === name ? ": they count as one client" : ""}.`));
  return out;
}

// grid is a table whose first column is words.
function grid(caption, heads, rows) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, el("table", {}, el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, ...heads.map((h, i) => el("th", { scope: "col", class: i === 0 ? "word" : undefined }, h)))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, el("th", { scope: "row", class: "word" }, cells[0]), ...cells.slice(1).map((c) => el("td", {}, c)))))));
}

function happened(r, canvas, page) {
  const t = r.traffic;
  canvas.setAttribute("aria-label", `Requests over time: at most ${number(Math.max(...t.bars))} in ${about(parseDuration(t.bar))}.`);
  const busy = t.busiest.map((b) => `${number(b.requests)} in ${b.per === "hour" ? "an" : "a"} ${b.per}`).join(", ");
  const outliers = t.outliers.map((o) => `${o.key} (${number(o.minute)} in a minute)`).join(", ");
  const without = el("button", { type: "button", id: "report-without" }, "Plan without");
  without.addEventListener("click", () => page.without(t.outliers.map((o) => o.key)));
  return el("section", {}, el("h3", {}, "What happened"),
    el("p", {}, el("b", {}, number(t.requests)), ` request${t.requests === 1 ? "" : "s"} of `, el("b", {}, number(t.clients)), ` client${t.clients === 1 ? "" : "s"}, `, t.from ? `${moment(t.from)} to ${moment(t.to)}. At the busiest: ${busy}.` : "none."),
    canvas,
    grid("The most that a client sent in one second, minute or hour", ["The most of a client in a", "half of them", "90%", "99%", "99.9%", "the most"],
      t.distribution.map((d) => [d.per, ...["p50", "p90", "p99", "p99.9", "max"].map((q) => number(d[q]))])),
    outliers ? el("p", { class: "outliers" }, `Far from the rest: ${outliers}.`, without) : null);
}

function would(r) {
  const all = r.results.map((x) => [x, x.limit]);
  if (r.choice) all.push([r.choice.would, `${r.choice.limit} (above)`]);
  return el("section", {}, el("h3", {}, "What limits would have done"),
    grid("What limits would have done", ["Limit", "requests denied", "share", "clients denied", "share", "longest lock-out", "most denied to"], all.map(([x, name]) => [
      el("code", {}, name), number(x.denied), percent(x.denied, x.requests), number(x.clients_denied), percent(x.clients_denied, x.clients),
      x.denied ? about(parseDuration(x.longest_lockout)) : "", x.top[0]?.key ?? ""])));
}

function choice(c, page) {
  const button = el("button", { type: "button", id: "choice-show" }, "Show it on the timeline");
  button.addEventListener("click", () => page.compare(c.limit));
  const w = c.would;
  return el("section", { class: "choice" }, el("h3", {}, "What to choose"),
    el("p", { class: "chosen" }, el("code", { id: "choice" }, c.limit), button),
    el("p", {}, `The tightest that denies at most ${c.target} is ${c.tightest}; with ${percent(c.margin, 1)} to grow it is this. On this log it would have denied ${count(w.denied, "request")} (${percent(w.denied, w.requests)}) of ${count(w.clients_denied, "client")} (${percent(w.clients_denied, w.clients)}).`),
    denied("Whom it would deny", w.top.map((d) => [d.key, `${number(d.denied)} denied${d.requests ? ` of ${number(d.requests)}` : ""}`, d.evidence])),
    c.left_out?.length ? denied("Those that had no say", c.left_out.map((d) => [d.key, d.exempt ? `let through: ${count(d.requests, "request")}` : `${number(d.denied)} denied of ${number(d.requests)}`])) : null,
    el("div", {}, el("h4", {}, "How sure that is"), el("ul", { class: "doubts" }, ...c.doubts.map((d) => el("li", {}, d)))),
    el("div", { class: "pair" }, pasted("h4", "The rule, in shadow first (YAML)", "choice-rule", c.rule), pasted("h4", "To look again later", "choice-check", c.check)));
}

// denied lists clients, each with what it did.
function denied(title, all) {
  if (!all.length) return null;
  return el("div", {}, el("h4", {}, title), el("ul", { class: "doubts" }, ...all.map(([key, what, e]) => el("li", {}, el("b", {}, key), `: ${what}`,
    e ? el("span", {}, `. ${did(e)}`) : null))));
}

// did says in a sentence what a client did.
function did(e) {
  const parts = (list) => list.map((p) => `${p.text} ${percent(p.share, 1)}`).join(", ");
  return [`${count(e.requests, "request")}, up to ${number(e.most_per_minute)} a minute`, parts(e.statuses), parts(e.paths), parts(e.user_agents), e.looks].filter(Boolean).join("; ");
}

// falls is who falls off as the limit tightens: a picture, and a table.
function falls(cliff, canvas) {
  const most = Math.max(...cliff.steps.map((s) => s.clients_denied));
  canvas.setAttribute("aria-label", `Clients denied as the limit tightens: ${cliff.steps.length} steps, at most ${number(most)}. The table has them all.`);
  return el("section", {}, el("h3", {}, "Who falls off as the limit tightens"), canvas,
    cliff.advice ? el("p", {}, `${cliff.advice}.`) : null,
    grid("Who falls off as the limit tightens", ["Limit", "a minute", "clients denied", "who falls here"], cliff.steps.map((s) => [
      el("code", {}, s.limit), number(s.most_per_minute), number(s.clients_denied),
      [[s.chosen ? "chosen" : "", s.edge ? "the cliff is below" : ""].filter(Boolean).join(", "), s.who.join(", ") + (s.falls > s.who.length ? ` and ${number(s.falls - s.who.length)} more` : "")].filter(Boolean).join(": ")])));
}

// paintSteps draws how many clients each step denies, the chosen one darker.
function paintSteps(canvas, steps, k) {
  const s = sheet(canvas, steps.length);
  const base = s.height - 18;
  const most = Math.max(1, ...steps.map((x) => x.clients_denied));
  s.c.textBaseline = "top";
  s.c.textAlign = "center";
  steps.forEach((x, i) => {
    const h = (x.clients_denied / most) * (base - 8);
    const w = s.span / steps.length;
    s.c.fillStyle = x.chosen ? k.passed : k.denied;
    s.c.fillRect(s.x(i) + 2, base - Math.max(h, 1), Math.max(1, w - 4), Math.max(h, 1));
    s.c.fillStyle = k.muted;
    if (w > 28) s.c.fillText(number(x.clients_denied), s.x(i) + w / 2, base + 3);
  });
  s.c.textAlign = "right";
  s.c.textBaseline = "middle";
  s.c.fillText(number(most), left - 6, 12);
  s.c.textAlign = "left";
}

// timeline offers the arrivals of a client, or of all.
function timeline(r, page) {
  const names = [...new Set([...r.results.flatMap((x) => x.top), ...(r.choice?.would.top ?? []), ...(r.traffic?.heaviest ?? [])].map((t) => t.key))];
  const select = el("select", { id: "log-client" }, el("option", { value: "" }, "everyone, under one key"), ...names.map((n) => el("option", { value: n }, n)));
  const own = el("input", { type: "text", id: "log-other", placeholder: "or any other by name" , "aria-label": "Any other client, by name" });
  const button = el("button", { type: "button", id: "log-show" }, "Show on the timeline");
  button.addEventListener("click", () => page.load(own.value.trim() || select.value));
  return el("section", {}, el("h3", {}, "On the timeline"),
    el("div", { class: "load" }, el("label", { for: "log-client" }, "Arrivals of"), select, own, button));
}

// paintBars draws the requests over time.
function paintBars(canvas, t, k) {
  const bar = parseDuration(t.bar);
  const start = Date.parse(t.start) * 1e6;
  const horizon = bar * t.bars.length;
  const s = sheet(canvas, horizon);
  const base = s.height - 18;
  const top = Math.max(...t.bars);
  axis(s, 4, base, stamps(start, horizon), k, start);
  s.c.fillStyle = k.passed;
  t.bars.forEach((n, i) => {
    const h = Math.max(n > 0 ? 1 : 0, (n / top) * (base - 8));
    s.c.fillRect(s.x(i * bar), base - h, Math.max(1, s.span / t.bars.length - (s.span / t.bars.length > 3 ? 1 : 0)), h);
  });
  s.c.fillStyle = k.muted;
  s.c.textAlign = "right";
  s.c.textBaseline = "middle";
  s.c.fillText(number(top), left - 6, 12);
  s.c.textAlign = "left";
}

// stamps returns how to write a time after start, as short as the axis allows.
function stamps(start, horizon) {
  const time = clock(horizon < 600e9 ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } : { hour: "2-digit", minute: "2-digit" });
  const day = clock({ day: "numeric", month: "short" });
  return (t) => {
    const at = new Date((start + t) / 1e6);
    return at.getTime() % 86400e3 === 0 || horizon > 5 * 86400e9 ? day.format(at) : time.format(at);
  };
}
