// Durations and verdicts as people read them.

const units = [["h", 3600e9], ["m", 60e9], ["s", 1e9]];

/** duration writes nanoseconds as Go does: 1m30s, 2.5s, 100ms. */
export function duration(ns) {
  if (ns < 0) return "never";
  if (ns === 0) return "0s";
  if (ns < 1e3) return `${ns}ns`;
  if (ns < 1e6) return `${trim(ns / 1e3, 3)}µs`;
  if (ns < 1e9) return `${trim(ns / 1e6, 6)}ms`;
  let text = "";
  for (const [unit, length] of units) {
    if (unit === "s") {
      if (ns > 0) text += `${trim(ns / 1e9, 9)}s`;
    } else if (ns >= length) {
      text += `${Math.floor(ns / length)}${unit}`;
      ns %= length;
    }
  }
  return text;
}

const trim = (x, decimals) => String(Number(x.toFixed(decimals)));

const lengths = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 };

/** parseDuration reads what duration writes; NaN for anything else. */
export function parseDuration(text) {
  const compact = text.trim();
  if (!/^(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$/.test(compact)) return NaN;
  let ns = 0;
  for (const [, n, , unit] of compact.matchAll(/(\d+(\.\d+)?)(ns|us|µs|ms|s|m|h)/g)) ns += Number(n) * lengths[unit];
  return Math.round(ns);
}

export const verdicts = { p: "passed", w: "passed, to wait", d: "denied" };

/** number writes a count with separators. */
export const number = (n) => n.toLocaleString("en");

/** about writes a length of time as precisely as a readout needs. */
export function about(ns) {
  if (ns <= 0) return duration(ns);
  const step = 10 ** Math.max(0, Math.floor(Math.log10(ns)) - 3);
  return duration(Math.round(ns / step) * step);
}
