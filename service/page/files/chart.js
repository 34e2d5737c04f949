// Columns of what passed and what was denied, as SVG: a few elements whose paths
// change, however long the page is open.

import { el, put } from "./dom.js";
import { clock, lasting, number, short } from "./words.js";

const height = 132;
const base = 112; // below it are times
const left = 40;

// merged sums neighbouring columns; most is the greatest number of columns left.
function merged(values, most) {
  const size = Math.ceil(values.length / most);
  const out = [];
  for (let i = 0; i < values.length; i += size) out.push(values.slice(i, i + size).reduce((a, b) => a + b, 0));
  return out;
}

const rectangle = (x, y, w, h) => `M${x.toFixed(1)} ${y.toFixed(1)}h${w.toFixed(1)}v${h.toFixed(1)}h${(-w).toFixed(1)}z`;

/**
 * chart makes a plot of some time. set gives it columns: when the last ends,
 * how many seconds each is long, and how many passed and were denied. What passed
 * is above the line and what was denied below it, on one scale: colour only
 * repeats what is seen.
 */
export function chart(label) {
  const passed = el("path", { class: "passed" });
  const denied = el("path", { class: "denied" });
  const over = el("path", { class: "over" });
  const zero = el("line", { class: "line", x1: left });
  const high = el("text", { x: left - 6, y: 13, "text-anchor": "end" });
  const low = el("text", { x: left - 6, y: base, "text-anchor": "end" });
  const times = [0, 1, 2, 3, 4].map((i) => el("text", { y: height - 4, "text-anchor": i === 4 ? "end" : i ? "middle" : "start" }));
  const svg = el("svg", { class: "plot", role: "slider", tabindex: "0", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0" },
    over, zero, passed, denied, high, low, ...times);
  const readout = el("p", { class: "readout" });
  let history = null;
  let columns = { allowed: [], denied: [] };
  let step = 1;
  let end = 0;
  let width = 0;
  let at = -1; // the column that is looked at

  function read() {
    const n = columns.allowed.length;
    over.setAttribute("d", at < 0 ? "" : rectangle(left + ((width - left) * at) / n, 0, (width - left) / n, base));
    const i = at < 0 ? n - 1 : at;
    if (i < 0) return;
    const from = end - (n - i) * step * 1000;
    const text = `${clock(new Date(from))} to ${clock(new Date(from + step * 1000))}: ${number(columns.allowed[i])} passed, ${number(columns.denied[i])} denied`;
    svg.setAttribute("aria-valuenow", String(i));
    svg.setAttribute("aria-valuemax", String(n - 1));
    svg.setAttribute("aria-valuetext", text);
    put(readout, at < 0 ? `A column is the requests in ${lasting(step * 1000)}. Point at one, or use the arrow keys.` : text);
  }

  svg.addEventListener("pointermove", (e) => {
    const x = e.clientX - svg.getBoundingClientRect().left - left;
    const n = columns.allowed.length;
    at = x < 0 ? -1 : Math.min(n - 1, Math.floor((x / (width - left)) * n));
    read();
  });
  for (const leave of ["pointerleave", "blur"]) svg.addEventListener(leave, () => ((at = -1), read()));
  svg.addEventListener("keydown", (e) => {
    const n = columns.allowed.length;
    const move = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: -10, PageDown: 10, Home: -n, End: n }[e.key];
    if (!move) return;
    e.preventDefault();
    at = Math.min(n - 1, Math.max(0, (at < 0 ? n : at) + move));
    read();
  });

  function draw() {
    width = svg.clientWidth || 720;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const most = width < 500 ? 60 : 180;
    columns = { allowed: merged(history.allowed, most), denied: merged(history.denied, most) };
    const n = columns.allowed.length;
    step = (history.step * history.allowed.length) / n;
    end = +new Date(history.to);
    const up = Math.max(0, ...columns.allowed);
    const down = Math.max(0, ...columns.denied);
    const below = down ? Math.max(16, ((base - 6) * down) / (up + down)) : 0;
    const middle = base - below;
    const scale = Math.min(up ? (middle - 4) / up : Infinity, down ? below / down : Infinity);
    const wide = (width - left) / n;
    let a = "";
    let d = "";
    for (let i = 0; i < n; i++) {
      const x = left + i * wide;
      const w = Math.max(0.6, wide - 0.8);
      if (columns.allowed[i]) a += rectangle(x, middle - Math.max(1, columns.allowed[i] * scale), w, Math.max(1, columns.allowed[i] * scale));
      if (columns.denied[i]) d += rectangle(x, middle + 1, w, Math.max(1.5, columns.denied[i] * scale));
    }
    passed.setAttribute("d", a);
    denied.setAttribute("d", d);
    for (const y of ["y1", "y2"]) zero.setAttribute(y, middle + 0.5);
    zero.setAttribute("x2", width);
    put(high, up ? short(up) : "");
    put(low, down ? short(down) : "");
    times.forEach((t, i) => {
      t.setAttribute("x", left + ((width - left) * i) / 4);
      put(t, clock(new Date(end - ((4 - i) / 4) * n * step * 1000)).slice(0, 5));
    });
    at = Math.min(at, n - 1);
    read();
  }

  new ResizeObserver(() => history && svg.clientWidth !== width && draw()).observe(svg);
  return {
    node: el("div", {}, svg, readout),
    set(h) {
      if (history === h) return;
      history = h;
      draw();
    },
  };
}

/** legend says what the columns are. */
export const legend = () => el("ul", { class: "legend", "aria-label": "Legend" },
  el("li", {}, el("span", { class: "mark", "aria-hidden": "true" }), "passed, above the line"),
  el("li", {}, el("span", { class: "mark denied", "aria-hidden": "true" }), "denied, below it"));

/** spark makes a small plot of what a rule said in some time; or a wide one. */
export function spark(wide = false) {
  const up = el("path", { class: "passed" });
  const down = el("path", { class: "denied" });
  const svg = el("svg", { class: wide ? "spark wide" : "spark", viewBox: "0 0 120 22", preserveAspectRatio: "none", role: "img" }, up, down);
  return {
    svg,
    set(r, range = "hour") {
      const scale = 20 / Math.max(1, Math.max(...r.allowed) + Math.max(...r.denied));
      const middle = 1 + Math.max(...r.allowed) * scale;
      const draw = (values, place) => values.map((v, i) => (v ? place(i * 2, Math.max(1, v * scale)) : "")).join("");
      up.setAttribute("d", draw(r.allowed, (x, h) => rectangle(x, middle - h, 1.5, h)));
      down.setAttribute("d", draw(r.denied, (x, h) => rectangle(x, middle, 1.5, h)));
      const sum = (values) => number(values.reduce((a, b) => a + b, 0));
      svg.setAttribute("aria-label", `last ${range}: ${sum(r.allowed)} passed, ${sum(r.denied)} denied`);
    },
  };
}
