// Numbers and times as people read them.

/** number writes a count with separators. */
export const number = (n) => n.toLocaleString("en");

/** rate writes how many a second. */
export const rate = (n) => (n === 0 ? "0" : n < 0.05 ? "<0.1" : n < 10 ? n.toFixed(1) : number(Math.round(n)));

/** short writes a large count in four characters or so. */
export function short(n) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (n >= size * 10) return `${Math.round(n / size)}${unit}`;
    if (n >= size) return `${(n / size).toFixed(1)}${unit}`;
  }
  return String(n);
}

const two = (n) => String(n).padStart(2, "0");

/** clock writes a time of day. */
export const clock = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;

/** when writes a time, with the day where that is not today. */
export function when(text) {
  const at = new Date(text);
  const today = new Date().toDateString() === at.toDateString();
  return (today ? "" : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `) + clock(at);
}

/** lasting writes a length of time in milliseconds: 41s, 3m 5s, 2h 10m. */
export function lasting(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))}ms`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${s % 60}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

/** ago writes how long ago a time is. */
export const ago = (text) => {
  const ms = Date.now() - new Date(text);
  return ms < 1000 ? "just now" : `${lasting(ms)} ago`;
};

/** bytes writes a size. */
export const bytes = (n) => (n < 1 << 20 ? `${Math.round(n / 1024)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`);

/** many writes a count of something. */
export const many = (n, one, more = `${one}s`) => `${number(n)} ${n === 1 ? one : more}`;
