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

// zone is the offset from UTC: Z, +02, +05:30.
function zone(at) {
  const m = -at.getTimezoneOffset();
  const [h, rest] = [Math.floor(Math.abs(m) / 60), Math.abs(m) % 60];
  return m === 0 ? "Z" : `${m < 0 ? "-" : "+"}${two(h)}${rest ? `:${two(rest)}` : ""}`;
}

/** when writes a time in the zone of the browser, with the day where that is not today. */
export function when(text) {
  const at = new Date(text);
  const today = new Date().toDateString() === at.toDateString();
  return `${today ? "" : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `}${clock(at)} ${zone(at)}`;
}

/** lasting writes a length of time in milliseconds: 41s, 3m 5s, 2h, 2h 10m. */
export function lasting(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))}ms`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s}s`;
  const [unit, size, part, each] = s < 3600 ? ["m", 60, "s", 1] : s < 86400 ? ["h", 3600, "m", 60] : ["d", 86400, "h", 3600];
  const rest = Math.floor((s % size) / each);
  return `${Math.floor(s / size)}${unit}${rest ? ` ${rest}${part}` : ""}`;
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

/** but writes what keeps an override from its effect. */
export const but = ({ note }) => (note ? `, but it ${note}` : "");
