// What is going on, as the server reports it: one stream for the page, open while
// the page can be seen. Of what came, the last is kept, and nothing else.

const listeners = new Set();
let source = null;
let again = 0;
const last = { now: null, hour: null, day: null };

/** watch has f called with {now, hour, day} at each event, and returns what ends that. */
export function watch(f) {
  listeners.add(f);
  if (last.now && last.hour && last.day) f(last);
  follow();
  return () => {
    listeners.delete(f);
    follow();
  };
}

/** heard takes an event; the stream calls it. */
export function heard(kind, text) {
  last[kind] = JSON.parse(text);
  if (last.now && last.hour && last.day) for (const f of listeners) f(last);
}

function follow() {
  const wanted = listeners.size > 0 && document.visibilityState === "visible";
  if (wanted === (source !== null)) return;
  clearTimeout(again);
  if (!wanted) {
    source.close();
    source = null;
    return;
  }
  const one = new EventSource("live");
  source = one;
  for (const kind of ["hour", "day", "now"]) one.addEventListener(kind, (e) => heard(kind, e.data));
  one.addEventListener("open", () => dispatchEvent(new CustomEvent("connection", { detail: true })));
  one.addEventListener("error", () => {
    one.close(); // it would not ask again after a refusal
    source = null;
    dispatchEvent(new CustomEvent("connection", { detail: false }));
    again = setTimeout(follow, 3000);
  });
}

document.addEventListener("visibilitychange", follow);
