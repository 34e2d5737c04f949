// The page: what is chosen goes to the lab, and what it answers is drawn.

import * as api from "./api.js";
import { beside, controls } from "./controls.js";
import { logs } from "./drop.js";
import { compare } from "./compare.js";
import { copied, offer } from "./copy.js";
import { byID } from "./dom.js";
import { colours } from "./paint.js";
import { presets } from "./presets.js";
import { explain, newRow, paint, read, show } from "./row.js";
import { sketch } from "./sketch.js";
import { cells, fromHash, limits, request, toHash } from "./state.js";
import { number } from "./words.js";

const about = await api.about().catch((err) => {
  fail(err);
  throw err;
});
const state = fromHash(location.hash);
const panel = controls(state, about, changed);
presets((hash) => {
  Object.assign(state, { log: state.log }, fromHash(hash));
  panel.show();
  changed();
});
let palette = colours();
let rows = [];
let answer = null;
let pointed = null; // the time under the pointer

const lab = {
  colours: () => palette,
  pointed: () => pointed,
  point(t) {
    pointed = t;
    for (const row of rows) {
      if (t === null) row.hovered = null;
      paint(row);
      read(row);
    }
  },
  select(limit, requested) {
    state.why = limit === null ? null : { limit, request: requested };
    changed();
  },
  async copy(limit) {
    try {
      const a = await api.simulate({ ...body(false), why: undefined, copy: limit });
      offer(a.rows[limit].limit, a.copy);
    } catch (err) {
      fail(err);
    }
  },
};
const strip = sketch(state, changed, lab.colours);
const log = about.plan ? logs({
  about,
  limits: () => limits(state, about.kinds),
  colours: lab.colours,
  /** show puts what came in a log on the timeline. */
  show(arrivals) {
    Object.assign(state, { log: arrivals, shape: "list", horizon: arrivals.horizon, why: null });
    panel.show();
    changed();
  },
  /** compare puts one more limit on the timeline. */
  compare(limit) {
    if (!limits(state, about.kinds).includes(limit)) state.own = [state.own.trim(), limit].filter(Boolean).join(", ");
    panel.show();
    changed();
  },
}) : null;

// columns is how many the plots have room for: a multiple of what is drawn in.
function columns() {
  const width = byID("results").clientWidth - 80;
  return cells * Math.min(4, Math.max(1, Math.round(width / cells / 7)));
}

const manyRequests = 12_000; // beyond it single requests are neither asked for nor drawn
let size = 0; // requests that the last answer was about, of all rows

const body = (each) => request(state, about, columns(), each);

// One request is under way at a time; what changes meanwhile is asked when it
// is back.
let asking = false;
let since = null; // the time of the event that is not drawn yet

async function changed(event) {
  since ??= event?.timeStamp ?? performance.now();
  if (event) panel.show();
  if (asking) return;
  asking = true;
  while (since !== null) {
    const begun = since;
    since = null;
    await update();
    performance.measure("from input to redraw", { start: begun, end: performance.now() });
  }
  asking = false;
  remember();
}

async function update() {
  if (limits(state, about.kinds).length === 0) {
    fail(new Error("Choose an algorithm, or write a limit."));
    return;
  }
  try {
    answer = await api.simulate(body(size <= manyRequests));
  } catch (err) {
    // A request that was looked at may be gone: look at none.
    if (state.why === null) return fail(err);
    state.why = null;
    try {
      answer = await api.simulate(body(size <= manyRequests));
    } catch (second) {
      return fail(second);
    }
  }
  answer.column = answer.horizon / answer.columns; // how long each is
  const before = size;
  size = answer.rows.reduce((sum, row) => sum + row.requests, 0);
  if (before > manyRequests && size <= manyRequests) return update();
  fine();
  draw();
}

function draw() {
  while (rows.length < answer.rows.length) {
    rows.push(newRow(rows.length, lab));
    byID("rows").append(rows.at(-1).node);
  }
  while (rows.length > answer.rows.length) rows.pop().node.remove();
  strip.show(answer);
  compare(answer);
  const up = (c) => c.passed.map((n, i) => n + c.delayed[i]);
  const scale = {
    up: Math.max(1, ...answer.rows.map((r) => Math.max(...up(r.columns)))),
    down: Math.max(0, ...answer.rows.map((r) => Math.max(...r.columns.denied))),
  };
  rows.forEach((row) => show(row, answer, about.kinds, scale));
  rows.forEach((row) => explain(row, answer.why?.limit === row.index ? answer.why : null));
  rows.forEach(paint);
  document.body.dataset.drawn = Number(document.body.dataset.drawn ?? 0) + 1;
}

function fail(err) {
  byID("error").textContent = err.message;
  byID("error").hidden = false;
  byID("compared").hidden = true; // it would be of what was asked before
  beside(err.message);
}

function fine() {
  byID("error").hidden = true;
  byID("compared").hidden = false;
  beside(null);
}

// remember writes the address and the summary, once things stand still.
let timer = 0;
let hash = "";

function remember() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    hash = toHash(state);
    history.replaceState(null, "", `#${hash}`);
    if (answer) byID("summary").textContent = `${answer.rows.map((r) => `${r.limit}: ${number(r.passed + r.delayed)} passed, ${number(r.denied)} denied`).join("; ")}.`;
  }, 250);
}

byID("share").addEventListener("click", (e) => {
  hash = toHash(state);
  history.replaceState(null, "", `#${hash}`);
  copied(e.target, location.href);
});
addEventListener("hashchange", () => {
  if (location.hash === `#${hash}`) return;
  Object.assign(state, fromHash(location.hash));
  panel.show();
  changed();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  palette = colours();
  strip.paint();
  rows.forEach(paint);
  log?.paint();
});
let width = 0;
new ResizeObserver(([results]) => {
  if (answer && Math.abs(results.contentRect.width - width) >= 1) changed();
  log?.paint();
  width = results.contentRect.width;
}).observe(byID("results"));
if (matchMedia("(max-width: 900px)").matches) { // the results are below: let them be near
  for (const id of ["kinds", "arrivals", "log"]) byID(id).closest("details").open = false;
}
panel.show();
changed();
