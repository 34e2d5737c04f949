// Painting on canvases: what is drawn of an answer, and where things are.

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** colours reads the colours of the theme. */
export function colours() {
  const all = {};
  for (const name of ["panel", "text", "muted", "line", "passed", "delayed", "denied", "area", "cursor"]) all[name] = style(`--${name}`);
  return all;
}

export const left = 44; // room for numbers beside a plot
const right = 6;

/** sheet readies a canvas for its size on the screen and returns how to draw. */
export function sheet(canvas, horizon) {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  c.font = "11.5px system-ui, sans-serif";
  const span = width - left - right;
  return { c, width, height, span, x: (ns) => left + (span * ns) / horizon, horizon };
}

/** timeAt returns the time under a point of a canvas, within the horizon. */
export function timeAt(canvas, clientX, horizon) {
  const box = canvas.getBoundingClientRect();
  const share = (clientX - box.left - left) / (box.width - left - right);
  return Math.min(Math.max(share, 0), 1 - 1e-9) * horizon;
}

const rounds = [1, 2, 5, 10, 15, 30];
const days = [1, 2, 7, 14, 30, 100, 365, 3650];
const onClocks = [...[1e9, 60e9].flatMap((unit) => rounds.map((r) => r * unit)), ...[1, 2, 3, 6, 12].map((h) => h * 3600e9), ...days.map((d) => d * 86400e9)];

/**
 * ticks returns round times, about one each 80 pixels. With an origin, the time
 * of the beginning since the epoch, they are those of clocks.
 */
export function ticks(horizon, span, origin = 0) {
  const want = (horizon * 80) / span;
  const power = 10 ** Math.floor(Math.log10(want));
  const step = (origin > 0 || want > 1e9 ? onClocks : [1, 2, 5, 10].map((r) => r * power)).find((s) => s >= want) ?? want;
  const out = [];
  for (let t = Math.ceil(origin / step) * step - origin; t <= horizon; t += step) out.push(t);
  return out;
}

/** axis draws the times below a plot, and faint lines through it. */
export function axis(s, top, bottom, text, k, origin = 0) {
  const { c } = s;
  c.strokeStyle = k.line;
  c.fillStyle = k.muted;
  c.lineWidth = 1;
  c.textBaseline = "top";
  for (const t of ticks(s.horizon, s.span, origin)) {
    const x = Math.round(s.x(t)) + 0.5;
    c.beginPath();
    c.moveTo(x, top);
    c.lineTo(x, bottom);
    c.stroke();
    const label = text(t);
    const half = c.measureText(label).width / 2;
    c.textAlign = "center";
    c.fillText(label, Math.min(Math.max(x, half + 1), s.width - half - 1), bottom + 3);
  }
}

/** block draws one request: full, half or crossed, so that it needs no colour. */
export function block(c, verdict, x, y, w, h, k) {
  switch (verdict) {
    case "p":
      c.fillStyle = k.passed;
      c.fillRect(x, y, w, h);
      return;
    case "w":
      c.fillStyle = c.strokeStyle = k.delayed;
      c.lineWidth = 1;
      c.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
      c.beginPath();
      c.moveTo(x + w, y);
      c.lineTo(x + w, y + h);
      c.lineTo(x, y + h);
      c.fill();
      return;
    default:
      c.strokeStyle = k.denied;
      c.lineWidth = 1;
      c.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
      if (w < 4 || h < 4) return;
      c.beginPath();
      c.moveTo(x + 1, y + 1);
      c.lineTo(x + w - 1, y + h - 1);
      c.moveTo(x + w - 1, y + 1);
      c.lineTo(x + 1, y + h - 1);
      c.stroke();
  }
}

// hatches are kept for each colour: a tile with a line, or with two.
const hatches = new Map();

function hatch(c, colour, crossed) {
  const key = `${colour} ${crossed}`;
  if (!hatches.has(key)) {
    const tile = new OffscreenCanvas(6, 6);
    const t = tile.getContext("2d");
    t.strokeStyle = colour;
    t.lineWidth = 1.2;
    t.beginPath();
    t.moveTo(-1, 7);
    t.lineTo(7, -1);
    if (crossed) {
      t.moveTo(-1, -1);
      t.lineTo(7, 7);
    }
    t.stroke();
    hatches.set(key, c.createPattern(tile, "repeat"));
  }
  return hatches.get(key);
}

/** heap draws many requests as one bar: full, hatched or cross-hatched. */
export function heap(c, verdict, x, y, w, h, k) {
  if (h <= 0) return;
  const colour = { p: k.passed, w: k.delayed, d: k.denied }[verdict];
  c.fillStyle = verdict === "p" ? colour : hatch(c, colour, verdict === "d");
  c.fillRect(x, y, w, h);
  if (verdict === "p") return;
  c.strokeStyle = colour;
  c.lineWidth = 1;
  if (w > 2 && h > 2) c.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
}
