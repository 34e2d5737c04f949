// Examples to begin with: each is a state as an address holds it.

import { byID, el } from "./dom.js";

const all = [
  ["Window edge", ""],
  ["API", "count=100&period=1m&burst=20&kinds=gcra,fixed_window,sliding_counter&shape=poisson&rate=150%2F1m&horizon=6m"],
  ["Login", "count=5&period=1m&burst=5&kinds=gcra,fixed_window,sliding_log&shape=hammer&rate=1%2F10s&gap=2s&horizon=6m"],
  ["Queue", "count=10&period=1s&burst=15&kinds=gcra,leaky_queue&shape=burst&size=25&every=2s&horizon=6s"],
  ["Many clients", "count=10&period=1s&burst=10&kinds=gcra,sliding_log&shape=several&clients=4&rate=25%2F1s&other=8%2F1s&horizon=6s"],
  ["In flight", "count=8&period=1s&burst=8&kinds=gcra&own=10+in+flight&lasts=2s&shape=poisson&rate=8%2F1s&horizon=30s"],
];

/** presets makes a button for each example; take is called with its state. */
export function presets(take) {
  byID("presets").replaceChildren(...all.map(([name, hash]) => el("button", { type: "button", onclick: () => take(hash) }, name)));
}
