// What is chosen, as a plain object, as the part of the address behind #, and
// as the request that the lab answers.

import { duration, parseDuration } from "./words.js";

export const cells = 60; // what can be drawn in

/** fit returns arrivals that show something of a limit. */
export function fit(count, period) {
  const rate = (n) => `${Math.max(1, n)}/${duration(period)}`;
  return {
    rate: rate(2 * count), other: rate(Math.round(count / 2)), size: Math.max(1, count), gap: Math.max(1, Math.round(period / 10)),
    every: 2 * period, on: period, off: period, seed: 1, clients: 3, shared: false, counts: drawn(count),
    text: `${count}@once +${duration(period / 2)} ${2 * count}@${rate(4 * count)} +${duration(2 * period)}`,
    horizon: 6 * period, lasts: Math.max(1, Math.round(period / 2)),
  };
}

// drawn is a hill, for a first look at drawing.
const drawn = (count) => Array.from({ length: cells }, (_, i) => Math.round((count / 2) * Math.exp(-(((i - 20) / 8) ** 2))));

export function initial() {
  return {
    count: 10, period: 1e9, burst: 10, tied: true, parts: 60, relaxed: false, count_denied: false,
    kinds: ["gcra", "fixed_window", "sliding_log"], own: "", shape: "edge", ...fit(10, 1e9), why: null,
    log: null, // the arrivals that were taken from a log
  };
}

// How each field is written in an address: its type.
const fields = {
  count: "number", period: "duration", burst: "number", tied: "flag", parts: "number", relaxed: "flag", count_denied: "flag", kinds: "list", own: "text",
  shape: "text", rate: "text", other: "text", size: "number", gap: "duration", every: "duration", on: "duration", off: "duration",
  seed: "number", clients: "number", shared: "flag", counts: "numbers", text: "text", horizon: "duration", lasts: "duration", why: "place",
};

const write = {
  number: String, text: String, duration, flag: (v) => (v ? "1" : "0"), list: (v) => v.join(","), numbers: (v) => v.join("."),
  place: (v) => `${v.limit}.${v.request}`,
};

const read = {
  number: (t) => (/^\d{1,15}$/.test(t) ? Number(t) : undefined),
  text: (t) => t.slice(0, 2000),
  duration: (t) => (parseDuration(t) >= 1 ? parseDuration(t) : undefined),
  flag: (t) => t === "1",
  list: (t) => t.split(",").filter((k) => /^[a-z_]+$/.test(k)),
  numbers: (t) => (/^\d{1,6}(\.\d{1,6})*$/.test(t) ? Array.from({ length: cells }, (_, i) => Number(t.split(".")[i] ?? 0)) : undefined),
  place: (t) => (/^\d{1,2}\.\d{1,6}$/.test(t) ? { limit: Number(t.split(".")[0]), request: Number(t.split(".")[1]) } : undefined),
};

/** toHash writes what differs from the initial state. */
export function toHash(state) {
  const start = initial();
  const out = new URLSearchParams();
  for (const [name, type] of Object.entries(fields)) {
    if (state[name] === null || state[name] === undefined) continue;
    if (name === "tied" && state.burst !== state.count) continue; // it shows
    if (state.shape === "list" && ["shape", "horizon", "why"].includes(name)) continue; // an address holds no log
    const text = write[type](state[name]);
    if (start[name] === null || text !== write[type](start[name])) out.set(name, text);
  }
  return out.toString();
}

/** fromHash reads a state; what is not understood stays as at the start. */
export function fromHash(hash) {
  const state = initial();
  for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (!Object.hasOwn(fields, name)) continue;
    const value = read[fields[name]](text);
    if (value !== undefined) state[name] = value;
  }
  if (state.burst !== state.count) state.tied = false;
  if (state.shape === "list") state.shape = initial().shape;
  return state;
}

// longestOwn is far more than as many limits take as may be compared: what looks for the
// commas between them takes a square of it.
const longestOwn = 2000;

/** limits returns the texts of what is compared. */
export function limits(state, kinds) {
  const texts = kinds.filter((k) => state.kinds.includes(k.name)).map((k) => limitText(state, k));
  for (const text of state.own.slice(0, longestOwn).split(/,(?!\d{3}(?![\d_]))|(?<!\d),|(?<=[a-z] +[\d_,]+),(?=\d{3} *(?:\/|[a-z]+ *\/|per\b))/)) if (text.trim()) texts.push(text.trim()); // a comma in 1,000/h is none
  return texts;
}

function limitText(state, kind) {
  let text = `${state.count}/${duration(state.period)}`;
  if (kind.options.includes("burst") && state.burst !== state.count) text += ` burst ${state.burst}`;
  if (kind.name !== "gcra") text += ` ${kind.name}`;
  if (kind.options.includes("parts") && state.parts !== 60) text += ` parts ${state.parts}`;
  for (const flag of ["relaxed", "count_denied"]) if (state[flag] && kind.options.includes(flag)) text += ` ${flag}`;
  return text;
}

/** request returns the body of POST v1/simulate. */
export function request(state, about, columns, each) {
  const shape = about.shapes.find((s) => s.name === state.shape) ?? about.shapes[0];
  const arrivals = { shape: shape.name };
  for (const p of shape.parameters) {
    if (p.name === "cell") arrivals.cell = duration(Math.max(1, Math.floor(state.horizon / cells)));
    else if (p.type === "duration") arrivals[p.name] = duration(state[p.name]);
    else arrivals[p.name] = state[p.name];
  }
  if (shape.name === "list") Object.assign(arrivals, { times: state.log.times });
  const body = { limits: limits(state, about.kinds), arrivals, lasts: duration(state.lasts), columns, each };
  if (shape.name !== "text") body.horizon = duration(state.horizon);
  if (state.why) body.why = state.why;
  return body;
}
