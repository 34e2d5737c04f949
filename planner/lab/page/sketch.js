// The arrivals: how many requests come when, and drawing others by hand.

import { byID, el } from "./dom.js";
import { left, sheet, timeAt } from "./paint.js";
import { cells } from "./state.js";
import { number } from "./words.js";

/** sketch makes the strip of the arrivals. Drawing on it changes the state. */
export function sketch(state, changed, colours) {
  const canvas = el("canvas", { role: "img" });
  const said = el("span", { class: "title" });
  const mark = (name) => el("span", { class: `mark ${name}`, "aria-hidden": "true" });
  const legend = el("ul", { id: "legend", "aria-label": "Legend" },
    el("li", {}, mark("passed"), "passed"), el("li", {}, mark("delayed"), "passed, to wait"), el("li", {}, mark("denied"), "denied"));
  byID("sketch").replaceChildren(el("div", { class: "bar" }, el("h2", {}, "Requests that arrive"), said, legend), canvas);
  let counts = []; // in each cell
  let horizon = 1;
  let top = 1; // what the height of the strip is
  let drawing = false;

  function paint() {
    const k = colours();
    const s = sheet(canvas, horizon);
    const base = s.height - 4;
    s.c.fillStyle = k.muted;
    counts.forEach((n, i) => {
      const h = (Math.min(n, top) / top) * (base - 8);
      if (n > 0) s.c.fillRect(s.x((i * horizon) / counts.length), base - h, Math.max(1, s.span / counts.length - 1), h);
    });
    s.c.strokeStyle = k.muted;
    s.c.beginPath();
    s.c.moveTo(left, base + 0.5);
    s.c.lineTo(s.width - 6, base + 0.5);
    s.c.stroke();
    s.c.textAlign = "right";
    s.c.textBaseline = "middle";
    s.c.fillText(number(top), left - 6, 10);
  }

  // draw sets the cell under the pointer, and those passed over since.
  let last = null;
  function draw(e) {
    const i = Math.floor((timeAt(canvas, e.clientX, horizon) / horizon) * cells);
    const box = canvas.getBoundingClientRect();
    const n = Math.max(0, Math.round(((box.bottom - 4 - e.clientY) / (box.height - 12)) * top));
    const from = last === null ? i : last;
    for (let j = Math.min(from, i); j <= Math.max(from, i); j++) state.counts[j] = n;
    last = i;
    counts = state.counts;
    paint();
    changed(e);
  }

  canvas.addEventListener("pointerdown", (e) => {
    if (state.shape !== "draw") {
      state.counts = inCells(counts);
      state.shape = "draw";
    }
    state.why = null;
    state.horizon = Math.round(horizon);
    drawing = true;
    canvas.setPointerCapture(e.pointerId);
    draw(e);
  });
  canvas.addEventListener("pointermove", (e) => drawing && draw(e));
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      drawing = false;
      last = null;
    });
  }

  return {
    /** show draws the arrivals of an answer: those of its first row. */
    show(answer) {
      horizon = answer.horizon;
      const c = answer.rows[0].columns;
      counts = inCells(c.passed.map((n, i) => n + c.delayed[i] + c.denied[i]));
      if (!drawing) top = Math.max(5, ...counts.map((n) => Math.ceil(n * 1.25)));
      said.textContent = "draw here to make your own";
      canvas.setAttribute("aria-label", `${number(answer.rows[0].requests)} requests over the time shown, at most ${number(Math.max(...counts))} in a sixtieth of it. To draw without a pointer choose the shape “Drawn by hand” and write the numbers.`);
      paint();
    },
    paint,
  };
}

// inCells sums counts of columns into the cells that can be drawn in.
function inCells(counts) {
  const out = new Array(cells).fill(0);
  counts.forEach((n, i) => (out[Math.min(cells - 1, Math.floor((i * cells) / counts.length))] += n));
  return out;
}
