// The controls: each shows a part of the state and changes it.

import { byID, el } from "./dom.js";
import { cells, fit } from "./state.js";
import { duration, parseDuration } from "./words.js";

const steps = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 1500, 2000, 3000, 5000, 10000];
const lengths = [1e6, 2e6, 5e6, 10e6, 20e6, 50e6, 100e6, 200e6, 500e6, 1e9, 2e9, 3e9, 4e9, 5e9, 6e9, 10e9, 12e9, 15e9, 20e9, 30e9, 60e9, 120e9, 300e9, 360e9, 600e9, 900e9, 1800e9, 3600e9, 7200e9, 21600e9, 43200e9, 86400e9, 172800e9, 604800e9];
const periods = lengths.filter((l) => l >= 100e6 && l <= 86400e9);

// nearest returns where a value stands among stops.
function nearest(stops, value) {
  let best = 0;
  stops.forEach((s, i) => {
    if (s === 0 || value === 0) {
      if (s === value) best = i;
      return;
    }
    if (stops[best] === 0 || Math.abs(Math.log(s / value)) < Math.abs(Math.log(stops[best] / value))) best = i;
  });
  return best;
}

// slider is a slider over round values, and a field for exact ones.
function slider({ id, label, stops, get, set, format, parse, beside, changed }) {
  const range = el("input", { type: "range", id: `${id}-range`, min: 0, max: stops.length - 1, step: 1, "aria-label": label });
  const field = el("input", { type: "text", id, class: "short", inputmode: format === String ? "numeric" : "text" });
  const show = () => {
    range.value = nearest(stops, get());
    range.setAttribute("aria-valuetext", format(get()));
    if (document.activeElement !== field) field.value = format(get()); // what is being written stays as it is
    field.removeAttribute("aria-invalid");
  };
  field.addEventListener("blur", () => show());
  range.addEventListener("input", (e) => {
    set(stops[Number(range.value)]);
    show();
    changed(e);
  });
  field.addEventListener("input", (e) => {
    const value = parse(field.value);
    if (!(value >= Math.min(1, stops[0]))) {
      field.setAttribute("aria-invalid", "true");
      return;
    }
    set(value);
    show();
    changed(e);
  });
  const node = el("div", { class: "control" }, el("label", { for: id }, label), el("span", { class: "value" }, field, beside), range);
  return { node, show };
}

const whole = (text) => (/^\d{1,15}$/.test(text.replaceAll(/[_, ]/g, "")) ? Number(text.replaceAll(/[_, ]/g, "")) : NaN);

const counted = { stops: steps, format: String, parse: whole };
const timed0 = { stops: [0, ...lengths], format: duration, parse: parseDuration };
const timed = { stops: lengths, format: duration, parse: parseDuration };

/** controls builds them all; changed is called with the event after each change. */
export function controls(state, about, changed) {
  const parts = [limit(state, changed), kinds(state, about, changed), arrivals(state, about, changed)];
  return { show: () => parts.forEach((p) => p.show()) };
}

function limit(state, changed) {
  const follow = (v) => {
    if (state.tied) state.burst = v;
  };
  const all = [
    slider({ id: "count", label: "Count", ...counted, changed, get: () => state.count, set: (v) => {
      state.count = v;
      follow(v);
      burst.show();
    } }),
    slider({ id: "period", label: "Period", ...timed, stops: periods, changed, get: () => state.period, set: (v) => (state.period = v) }),
  ];
  const burst = slider({ id: "burst", label: "Burst (buckets and queue)", ...counted, changed, get: () => state.burst, set: (v) => {
    state.burst = v;
    state.tied = false;
    tied.show();
  } });
  const tied = check("tied", "Burst goes with the count", () => state.tied, (on) => {
    state.tied = on;
    follow(state.count);
    burst.show();
  }, changed, el("span", { class: "few", id: "tied-few" }, "as a limit without a burst in its text has it"));
  const parts = [...all, burst, tied];
  byID("limit").replaceChildren(...parts.map((s) => s.node));
  return { show: () => parts.forEach((s) => s.show()) };
}

/**
 * beside says what is wrong beside the control that it is about, if there is
 * one; null takes it away.
 */
export function beside(message) {
  document.querySelector(".wrong")?.remove();
  for (const field of document.querySelectorAll("[aria-describedby=wrong]")) {
    field.removeAttribute("aria-describedby");
    field.removeAttribute("aria-invalid");
  }
  if (message === null) return;
  const [, name, parameter] = /^(\w+)\.?(\w*)/.exec(message) ?? [];
  const field = byID({ limits: "own", arrivals: `p-${parameter}` }[name] ?? name);
  const control = field?.closest(".control");
  if (!control) return;
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", "wrong");
  field.closest("details").open = true;
  control.append(el("p", { class: "wrong", id: "wrong" }, message));
}

// check is a box to tick, with what is said about it.
function check(id, label, get, set, changed, ...more) {
  const box = el("input", { type: "checkbox", id, "aria-describedby": more.length ? `${id}-few` : undefined });
  box.addEventListener("change", (e) => {
    set(box.checked);
    changed(e);
  });
  return { node: el("div", { class: "check" }, box, el("label", { for: id }, label), ...more), show: () => (box.checked = get()) };
}

function kinds(state, about, changed) {
  const all = about.kinds.map((k) => check(
    `kind-${k.name}`, k.title, () => state.kinds.includes(k.name),
    (on) => (state.kinds = about.kinds.map((o) => o.name).filter((n) => (n === k.name ? on : state.kinds.includes(n)))), changed,
    explanation(k),
  ));
  const parts = slider({ id: "parts", label: "Parts (sliding_buckets)", stops: [1, 2, 4, 6, 10, 12, 20, 30, 60, 120, 300, 600, 3600], format: String, parse: whole, changed, get: () => state.parts, set: (v) => (state.parts = v) });
  const flags = [
    check("count_denied", "Count what is denied", () => state.count_denied, (v) => (state.count_denied = v), changed,
      el("span", { class: "few", id: "count_denied-few" }, "windows, log, counter and parts: who keeps hammering stays out")),
    check("relaxed", "Relaxed counter", () => state.relaxed, (v) => (state.relaxed = v), changed,
      el("span", { class: "few", id: "relaxed-few" }, "sliding_counter: admits one unit more, as some libraries do")),
  ];
  const own = el("input", { type: "text", id: "own", placeholder: "100/m, every 2s, 20 in flight" });
  own.addEventListener("input", (e) => {
    state.own = own.value;
    changed(e);
  });
  const ownNode = el("div", { class: "control wide" }, el("label", { for: "own" }, "Other limits, as text, with commas between"), el("span", { class: "value" }, own));
  const options = el("details", { class: "options" }, el("summary", {}, "Options"), parts.node, ...flags.map((c) => c.node));
  byID("kinds").replaceChildren(...all.map((c) => c.node), options, ownNode);
  return {
    show() {
      if (state.parts !== 60 || state.count_denied || state.relaxed) options.open = true;
      [...all, parts, ...flags].forEach((c) => c.show());
      own.value = state.own;
    },
  };
}

function explanation(k) {
  const line = (term, text) => [el("dt", {}, term), el("dd", {}, text)];
  return el("details", {},
    el("summary", { class: "few" }, el("span", { id: `kind-${k.name}-few` }, el("code", {}, k.name), `, ${k.few}`)),
    el("dl", {}, ...line("How it works", k.how), ...line("Choose it", k.choose), ...line("Goes wrong", k.wrong),
      ...line("Most in one period", k.most), ...line("Memory for a key", `${k.memory} (a word is 8 bytes)`)));
}

function arrivals(state, about, changed) {
  const shapes = about.shapes.filter((s) => s.name !== "list");
  const select = el("select", { id: "shape" }, ...shapes.map((s) => el("option", { value: s.name }, s.title)));
  const own = el("option", { value: "list" }, "Your own log");
  const note = el("p", { class: "note", id: "shape-note" });
  select.setAttribute("aria-describedby", "shape-note");
  const holder = el("div", { class: "group-parts" });
  let shown = [];
  let shape = "";
  const horizon = slider({ id: "horizon", label: "Time shown", ...timed, changed, get: () => state.horizon, set: (v) => (state.horizon = v) });
  const lasts = slider({ id: "lasts", label: "A request lasts (limits in flight)", ...timed, changed, get: () => state.lasts, set: (v) => (state.lasts = v) });
  const again = el("button", { type: "button", id: "fit" }, "Fit to the limit");
  again.addEventListener("click", (e) => {
    Object.assign(state, fit(state.count, state.period), { why: null });
    show();
    changed(e);
  });
  select.addEventListener("change", (e) => {
    if (select.value === "list") state.horizon = state.log.horizon;
    else if (state.shape === "list") state.horizon = fit(state.count, state.period).horizon;
    state.shape = select.value;
    state.why = null;
    show();
    changed(e);
  });
  function show() {
    if (state.log && !own.isConnected) select.append(own);
    again.hidden = state.shape === "list";
    if (state.shape === "list") {
      shape = state.shape;
      shown = [];
      note.textContent = state.log.about;
      holder.replaceChildren();
    } else if (shape !== state.shape) {
      shape = state.shape;
      const s = shapes.find((o) => o.name === shape) ?? shapes[0];
      shown = s.parameters.filter((p) => !["period", "cell"].includes(p.name)).map((p) => parameter(p, state, changed));
      note.textContent = s.about;
      holder.replaceChildren(...shown.map((p) => p.node));
    }
    select.value = state.shape;
    horizon.node.hidden = state.shape === "text"; // phases say how long they are
    [...shown, horizon, lasts].forEach((p) => p.show());
  }
  holder.className = "parameters";
  byID("arrivals").replaceChildren(
    el("div", { class: "control wide" }, el("label", { for: "shape" }, "Shape"), select), note, holder, horizon.node, lasts.node, el("div", {}, again));
  return { show };
}

// parameter is the control of one parameter of a shape.
function parameter(p, state, changed) {
  const own = { id: `p-${p.name}`, label: p.label, changed, get: () => state[p.name], set: (v) => (state[p.name] = v) };
  switch (p.type) {
    case "rate": return rate(own, state, p.name);
    case "count": return slider({ ...own, ...counted, ...(p.name === "clients" ? { stops: [2, 3, 4, 5, 6, 8, 10, 20, 50, 100, 200] } : {}) });
    case "duration": return slider({ ...own, ...timed });
    case "flag": return check(own.id, p.label, own.get, own.set, changed);
    case "seed": return slider({ ...own, ...counted, stops: Array.from({ length: 50 }, (_, i) => i + 1) });
    case "list": return text(own, p, (v) => v.join(" "), (t) => {
      const counts = t.trim().split(/[\s,]+/).map(whole);
      return counts.some(Number.isNaN) ? null : Array.from({ length: cells }, (_, i) => counts[i] ?? 0);
    });
    default: return text(own, p, String, String);
  }
}

// rate is a slider for how many, and a list for in which time.
function rate(own, state, name) {
  const parts = () => [Number(state[name].split("/")[0]), parseDuration(state[name].split("/")[1] ?? "") || 1e9];
  const per = el("select", { "aria-label": `${own.label}: in which time` });
  const s = slider({ ...own, ...counted, beside: per, get: () => parts()[0], set: (v) => (state[name] = `${v}/${duration(parts()[1])}`) });
  per.addEventListener("change", (e) => {
    state[name] = `${parts()[0]}/${per.value}`;
    own.changed(e);
  });
  return {
    node: s.node,
    show() {
      const now = parts()[1];
      const all = [...new Set([1e9, 60e9, 3600e9, now])].sort((a, b) => a - b);
      per.replaceChildren(...all.map((l) => el("option", { value: duration(l) }, `in ${duration(l)}`)));
      per.value = duration(now);
      s.show();
    },
  };
}

// text is a field for text that read turns into a value, or null.
function text(own, p, write, read) {
  const field = el("input", { type: "text", id: own.id, class: "mono" });
  field.addEventListener("input", (e) => {
    const value = read(field.value);
    field.toggleAttribute("aria-invalid", false);
    if (value === null) {
      field.setAttribute("aria-invalid", "true");
      return;
    }
    own.set(value);
    own.changed(e);
  });
  return {
    node: el("div", { class: "control wide" }, el("label", { for: own.id }, p.label), el("span", { class: "value" }, field)),
    show: () => {
      if (document.activeElement !== field) field.value = write(own.get());
    },
  };
}
