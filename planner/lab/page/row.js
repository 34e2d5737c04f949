// One limit: its totals, its timeline and level, and the request that is
// looked at.

import { el } from "./dom.js";
import { axis, block, heap, left, sheet, timeAt } from "./paint.js";
import { table } from "./table.js";
import { explanation } from "./why.js";
import { about, duration, number, verdicts } from "./words.js";

/** newRow makes the elements of one limit. lab has what a row asks of the page. */
export function newRow(index, lab) {
  const name = el("code");
  const title = el("span", { class: "title" });
  const totals = el("p", { class: "totals" });
  const readout = el("p", { class: "readout" });
  const canvas = el("canvas", { "aria-hidden": "true" });
  const plot = el("div", { class: "plot", role: "slider", tabindex: 0, "aria-valuemin": 1 }, canvas);
  const whyDenied = el("button", { type: "button", class: "why-denied" }, "Why denied?");
  const copy = el("button", { type: "button", class: "copy" }, "Copy as…");
  const why = el("div", { "aria-live": "polite" });
  const rows = el("div", { class: "scroll", tabindex: 0, role: "region" });
  const list = el("details", {}, el("summary", {}, "As a table"), rows);
  const node = el("article", { class: "row" },
    el("div", { class: "bar" }, el("h2", {}, name), title, totals, el("span", { class: "actions" }, whyDenied, copy)),
    plot, el("div", { class: "foot" }, readout, list), why);
  const row = { index, lab, node, name, title, totals, readout, canvas, plot, whyDenied, copy, why, list, rows, looked: -1, hovered: null };
  copy.addEventListener("click", () => lab.copy(index));
  whyDenied.addEventListener("click", () => nextDenied(row));
  list.addEventListener("toggle", () => showTable(row));
  canvas.addEventListener("pointermove", (e) => hover(row, e));
  canvas.addEventListener("pointerleave", () => lab.point(null));
  canvas.addEventListener("click", (e) => {
    const request = requestAt(row, e);
    if (request >= 0) lab.select(index, request);
  });
  plot.addEventListener("keydown", (e) => key(row, e));
  return row;
}

/** show takes a row of an answer; explain and paint do the rest. */
export function show(row, answer, kinds, scale) {
  const data = answer.rows[row.index];
  Object.assign(row, { answer, data, scale, each: data.each ?? null, at: data.each?.at ?? answer.at ?? null });
  const kind = kinds.find((k) => k.name === data.kind) ?? { title: "Requests that run at one moment", level: "in flight" };
  row.level = kind.level;
  row.name.textContent = data.limit;
  row.title.textContent = kind.title;
  row.node.setAttribute("aria-label", data.limit);
  row.rows.setAttribute("aria-label", `Table of the requests under ${data.limit}`);
  const parts = [[data.passed, "passed"], [data.denied, "denied"]];
  if (data.delayed || kind.queues) parts.splice(1, 0, [data.delayed, `passed, to wait (${about(data.longest_wait)} at most)`]);
  row.totals.replaceChildren(...parts.map(([n, text]) => el("span", {}, el("b", {}, number(n)), ` ${text}`)),
    el("span", {}, "at most ", el("b", {}, number(data.most)), ` in any ${duration(data.most_in)}`));
  row.whyDenied.disabled = data.denied === 0;
  if (row.looked >= data.requests) row.looked = -1;
  row.stacks = row.each ? stacks(row) : null;
  row.lanes = row.each && answer.clients.length > 1 ? lanes(row) : null;
  row.laneScale = row.lanes ? Math.max(1, ...row.lanes.flatMap((lane) => lane.columns.map((c) => c.all.length))) : 1;
  if (row.list.open) showTable(row);
}

// clientTotals says how the first clients fared, where there are several.
function clientTotals(row) {
  const all = row.data.by_client ?? [];
  const parts = all.slice(0, mostLanes).map((t, i) => `${row.answer.clients[i]} ${number(t.passed + t.delayed)} of ${number(t.passed + t.delayed + t.denied)}`);
  return parts.length === 0 ? "" : `Passed: ${parts.join(", ")}${all.length > mostLanes ? ", …" : ""}.`;
}

// stacks sorts the requests into columns: above what passed, below what did
// not.
function stacks(row) {
  const up = row.data.columns.passed.map(() => []);
  const down = up.map(() => []);
  for (let i = 0; i < row.data.requests; i++) {
    (row.each.verdicts[i] === "d" ? down : up)[Math.floor((row.at[i] * row.answer.columns) / row.answer.horizon)].push(i);
  }
  return { up, down };
}

const mostLanes = 6;

// lanes sorts the requests by client and column: a lane for each client, the
// last for all beyond the others.
function lanes(row) {
  const { answer, data, each } = row;
  const n = Math.min(answer.clients.length, mostLanes);
  const more = answer.clients.length > mostLanes;
  const out = Array.from({ length: n }, (_, i) => ({
    name: more && i === n - 1 ? `${n}–${answer.clients.length}` : String(i + 1),
    columns: data.columns.passed.map(() => ({ p: 0, w: 0, d: 0, all: [] })),
  }));
  for (let j = 0; j < data.requests; j++) {
    const lane = out[Math.min(answer.who?.[j] ?? 0, n - 1)];
    const column = lane.columns[Math.floor((row.at[j] * answer.columns) / answer.horizon)];
    column[each.verdicts[j]]++;
    column.all.push(j);
  }
  return out;
}

// layout says where the parts of a plot are, from top to bottom.
function layout(row, s) {
  const foot = 16;
  const starts = row.data.delayed ? 10 : 0;
  const level = Math.round((s.height - foot) * 0.3);
  const timeline = s.height - foot - level - starts - 4;
  const { up, down } = row.scale;
  const unit = Math.min(12, (timeline - 4) / Math.max(1, up + down));
  const zero = 2 + Math.round(unit * up);
  return { unit, zero, timeline, starts: timeline + 1, startsHeight: starts, top: s.height - foot - level, bottom: s.height - foot };
}

/** paint draws the plot of a row. */
export function paint(row) {
  const k = row.lab.colours();
  const s = sheet(row.canvas, row.answer.horizon);
  const l = layout(row, s);
  row.places = l;
  axis(s, 2, l.bottom, about, k);
  paintLevel(row, s, l, k);
  paintTimeline(row, s, l, k);
  if (l.startsHeight) paintStarts(row, s, l, k);
  const t = row.lab.pointed();
  if (t !== null) {
    const x = Math.round(s.x(t)) + 0.5;
    s.c.strokeStyle = k.cursor;
    s.c.lineWidth = 1;
    s.c.setLineDash([2, 3]);
    s.c.beginPath();
    s.c.moveTo(x, 0);
    s.c.lineTo(x, l.bottom);
    s.c.stroke();
    s.c.setLineDash([]);
  }
}

function paintTimeline(row, s, l, k) {
  if (row.lanes) {
    paintLanes(row, s, l, k);
    return;
  }
  const { c } = s;
  const { columns } = row.data;
  const n = columns.passed.length;
  const w = Math.max(1, s.x(row.answer.column) - left - 1);
  c.textAlign = "right";
  c.textBaseline = "middle";
  c.fillStyle = k.passed;
  if (row.scale.up * l.unit > 14) c.fillText(number(row.scale.up), left - 6, 7);
  c.fillStyle = k.denied;
  if (row.scale.down * l.unit > 14) c.fillText(number(row.scale.down), left - 6, l.zero + row.scale.down * l.unit - 4);
  for (let i = 0; i < n; i++) {
    const x = s.x(i * row.answer.column);
    if (row.stacks && l.unit >= 2.5) {
      row.stacks.up[i].forEach((j, h) => one(row, s, j, x, l.zero - (h + 1) * l.unit, w, l.unit - 1, k));
      row.stacks.down[i].forEach((j, h) => one(row, s, j, x, l.zero + 2 + h * l.unit, w, l.unit - 1, k));
      continue;
    }
    const passed = columns.passed[i] * l.unit;
    const delayed = columns.delayed[i] * l.unit;
    heap(c, "p", x, l.zero - passed, w, passed, k);
    heap(c, "w", x, l.zero - passed - delayed, w, delayed, k);
    heap(c, "d", x, l.zero + 2, w, columns.denied[i] * l.unit, k);
  }
  line(s, l.zero, k);
}

function line(s, y, k) {
  s.c.strokeStyle = k.muted;
  s.c.lineWidth = 1;
  s.c.beginPath();
  s.c.moveTo(left, y + 0.5);
  s.c.lineTo(s.width - 6, y + 0.5);
  s.c.stroke();
}

// one draws a request; what is looked at has a frame.
function one(row, s, j, x, y, w, h, k) {
  block(s.c, row.each.verdicts[j], x, y, w, h, k);
  if (j === row.looked) frame(s, x, y, w, h, k);
}

function frame(s, x, y, w, h, k) {
  s.c.strokeStyle = k.cursor;
  s.c.lineWidth = 2;
  s.c.strokeRect(x - 2, y - 2, w + 4, h + 4);
}

// paintLanes draws a lane for each client, with its number at the left: what it
// sent stands on the lane's line, passed below denied, to one scale.
function paintLanes(row, s, l, k) {
  const { c } = s;
  const height = l.timeline / row.lanes.length;
  const w = Math.max(1, s.x(row.answer.column) - left - 1);
  row.lanes.forEach((lane, n) => {
    const base = Math.round((n + 1) * height) - 1;
    const unit = (height - 3) / row.laneScale;
    c.fillStyle = k.muted;
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.fillText(lane.name, left - 6, base - height / 2 + 1);
    lane.columns.forEach((counts, i) => {
      let y = base;
      for (const verdict of "pwd") {
        const h = counts[verdict] * unit;
        y -= h;
        heap(c, verdict, s.x(i * row.answer.column), y, w, h, k);
      }
      if (row.looked >= 0 && counts.all.includes(row.looked)) frame(s, s.x(i * row.answer.column), y, w, base - y, k);
    });
    line(s, base, k);
  });
}

// paintStarts marks when what was admitted to a queue starts.
function paintStarts(row, s, l, k) {
  const { c } = s;
  c.fillStyle = k.muted;
  c.textAlign = "right";
  c.textBaseline = "middle";
  c.fillText("starts", left - 6, l.starts + 5);
  if (!row.each) return;
  c.fillStyle = k.passed;
  for (let j = 0; j < row.data.requests; j++) {
    if (row.each.verdicts[j] === "d") continue;
    const x = s.x(row.at[j] + (row.each.delay?.[j] ?? 0));
    if (x <= s.width - 6) c.fillRect(x, l.starts + 1, 1.5, 8);
  }
}

// levelPath returns the points of the curve of what is in use, between its least
// and its most in each column.
function levelPath(row, x, y) {
  const { low, high, remaining } = row.data.columns;
  const points = [];
  let now = low[0];
  low.forEach((least, i) => {
    const most = high[i];
    const middle = (x(i) + x(i + 1)) / 2;
    now = Math.min(Math.max(now, least), most); // as the column begins
    points.push([x(i), y(now)]);
    if (least < most) {
      points.push([middle, y(now)], [middle, y(now === least ? most : least)]);
      now = row.data.capacity - remaining[i];
      points.push([middle, y(now)]);
    }
    points.push([x(i + 1), y(now)]);
  });
  return points;
}

// paintLevel draws what is in use: a curve, and the area under that curve.
function paintLevel(row, s, l, k) {
  const { c } = s;
  const y = (units) => l.bottom - (Math.min(units, row.data.capacity) / row.data.capacity) * (l.bottom - l.top - 2);
  const x = (i) => s.x(Math.min(i * row.answer.column, row.answer.horizon));
  const points = levelPath(row, x, y);
  c.fillStyle = k.area;
  c.beginPath();
  c.moveTo(points[0][0], l.bottom);
  for (const [px, py] of points) c.lineTo(px, py);
  c.lineTo(points.at(-1)[0], l.bottom);
  c.fill();
  c.strokeStyle = k.passed;
  c.lineWidth = 1.5;
  c.beginPath();
  for (const [px, py] of points) c.lineTo(px, py);
  c.stroke();
  c.strokeStyle = k.muted;
  c.lineWidth = 1;
  c.setLineDash([4, 3]);
  c.beginPath();
  c.moveTo(left, Math.round(y(row.data.capacity)) + 0.5);
  c.lineTo(s.width - 6, Math.round(y(row.data.capacity)) + 0.5);
  c.stroke();
  c.setLineDash([]);
  c.textAlign = "left";
  c.textBaseline = "top";
  const whose = row.answer.clients.length > 1 ? `, ${row.answer.clients[0]}` : "";
  const label = `${row.level}, of ${short(row.data.capacity)}${whose}`;
  c.lineWidth = 3;
  c.strokeStyle = k.panel; // so that it can be read on the curve
  c.strokeText(label, left + 4, l.top + 5);
  c.fillStyle = k.muted;
  c.fillText(label, left + 4, l.top + 5);
}

const short = (n) => (n < 1e5 ? number(n) : n.toPrecision(2).replace("+", ""));

// requestAt returns the request under a pointer: the nearest in its column, or
// -1.
function requestAt(row, e) {
  const column = Math.floor(timeAt(row.canvas, e.clientX, row.answer.horizon) / row.answer.column);
  const y = e.clientY - row.canvas.getBoundingClientRect().top;
  const { zero, unit } = row.places;
  if (row.lanes) return inLane(row, column, y);
  const below = y > zero;
  if (!row.stacks) return row.data.columns[below ? "first_denied" : "first"][column];
  const side = row.stacks[below ? "down" : "up"][column];
  const stack = side.length ? side : row.stacks[below ? "up" : "down"][column];
  if (!stack.length) return -1;
  const h = Math.floor(Math.abs(y - zero) / unit);
  return stack[Math.min(h, stack.length - 1)];
}

// inLane returns the request at a height of a column, or -1: the first ones that
// passed stand lowest, what was denied on top.
function inLane(row, column, y) {
  const height = row.places.timeline / row.lanes.length;
  const n = Math.min(row.lanes.length - 1, Math.max(0, Math.floor(y / height)));
  const { all } = row.lanes[n].columns[column];
  if (!all.length) return -1;
  const order = [..."pwd"].flatMap((v) => all.filter((j) => row.each.verdicts[j] === v));
  const base = Math.round((n + 1) * height) - 1;
  return order[Math.min(Math.floor((Math.max(0, base - y) * row.laneScale) / (height - 3)), order.length - 1)];
}

function hover(row, e) {
  row.lab.point(timeAt(row.canvas, e.clientX, row.answer.horizon));
  const { zero, unit, top } = row.places;
  const y = e.clientY - row.canvas.getBoundingClientRect().top;
  const request = y < top ? requestAt(row, e) : -1;
  const { up, down } = row.scale;
  const near = row.lanes ? y < row.places.timeline : y > zero - unit * up - 4 && y < zero + unit * down + 6;
  row.hovered = row.each && request >= 0 && near ? request : null;
  read(row);
}

/** read says how things stand at the pointer, or at the request looked at. */
export function read(row) {
  const t = row.lab.pointed();
  if (row.hovered !== null && t !== null) row.readout.textContent = sentence(row, row.hovered);
  else if (t !== null) row.readout.textContent = standing(row, t);
  else if (row.looked >= 0 && row.each) row.readout.textContent = sentence(row, row.looked);
  else row.readout.textContent = clientTotals(row) || "Point at the plot to read it; click a request for why.";
}

// standing is how the key stands at a time.
function standing(row, t) {
  const { columns, capacity } = row.data;
  const i = Math.floor(t / row.answer.column);
  const wait = columns.retry_after[i];
  return `Just before ${about((i + 1) * row.answer.column)}: ${number(capacity - columns.remaining[i])} of ${number(capacity)} in use, ` +
    `${number(columns.remaining[i])} remaining${wait === 0 ? "" : `, retry after ${about(wait)}`}.`;
}

/** sentence says what became of a request. */
export function sentence(row, j) {
  const { each, answer } = row;
  const verdict = each.verdicts[j];
  const who = answer.clients.length > 1 ? ` of ${answer.clients[answer.who?.[j] ?? 0]}` : "";
  let text = `Request ${number(j + 1)}${who} at ${duration(row.at[j])}: ${verdicts[verdict]}`;
  if (verdict === "w") text += ` ${about(each.delay[j])}`;
  text += `, ${number(each.remaining[j])} remaining`;
  if (verdict === "d") text += `, retry after ${about(each.retry_after[j])}`;
  return `${text}.`;
}

// describe tells a screen reader what the plot is, and the request looked at.
function describe(row) {
  const { data } = row;
  row.plot.setAttribute("aria-label", `Requests under ${data.limit}: ${data.passed + data.delayed} passed, ${data.denied} denied. Arrow keys go from one to the next, N to the next denied one, Enter says why.`);
  row.plot.setAttribute("aria-valuemax", data.requests);
  row.plot.setAttribute("aria-valuenow", Math.max(row.looked, 0) + 1);
  row.plot.setAttribute("aria-valuetext", chosen(row));
  read(row);
}

function chosen(row) {
  if (row.looked < 0) return "no request chosen";
  return row.each ? sentence(row, row.looked) : `request ${number(row.looked + 1)}`;
}

function look(row, j) {
  row.looked = Math.min(Math.max(j, 0), row.data.requests - 1);
  describe(row);
  paint(row);
}

function denied(row, from) {
  if (!row.each) return row.data.columns.first_denied.find((j) => j >= from) ?? -1;
  return row.each.verdicts.indexOf("d", from);
}

function nextDenied(row) {
  let j = denied(row, row.looked + 1);
  if (j < 0) j = denied(row, 0);
  if (j >= 0) row.lab.select(row.index, j);
}

const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };

function key(row, e) {
  if (e.ctrlKey || e.altKey || e.metaKey) return;
  if (e.key in moves) look(row, row.looked + moves[e.key]);
  else if (e.key === "Home") look(row, 0);
  else if (e.key === "End") look(row, row.data.requests - 1);
  else if (e.key === "n" || e.key === "N") {
    const j = denied(row, row.looked + 1);
    if (j >= 0) look(row, j);
  } else if ((e.key === "Enter" || e.key === " ") && row.looked >= 0) row.lab.select(row.index, row.looked);
  else return;
  e.preventDefault();
}

/** explain shows why a request passed or not; null takes it away. */
export function explain(row, why) {
  if (why) {
    row.looked = why.request;
    row.why.replaceChildren(explanation(why, () => {
      row.lab.select(null);
      row.plot.focus();
    }));
  } else {
    row.why.replaceChildren();
  }
  describe(row);
}

function showTable(row) {
  if (row.list.open) row.rows.replaceChildren(table(row));
}
