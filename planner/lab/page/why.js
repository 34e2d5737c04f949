// Why a request passed or not, as the lab says it.

import { el } from "./dom.js";

/** explanation shows the lab's words and numbers. */
export function explanation(why, close) {
  const button = el("button", { type: "button", onclick: close }, "Close");
  const facts = why.facts.flatMap((f) => [el("dt", {}, f.label), el("dd", {}, f.text)]);
  const counted = (why.counted ?? []).map((c) => el("li", {}, `${c.units}: ${c.text}`));
  if (why.more) counted.push(el("li", {}, `and ${why.more} more`));
  return el("section", { class: `why ${why.verdict}`, "aria-label": why.title },
    el("h3", {}, `${why.title}`, el("span", { class: "title" }, `request ${why.request + 1}`), button),
    el("div", { class: "words" }, ...why.words.map((w) => el("p", {}, w))),
    el("dl", {}, ...facts),
    counted.length > 0 ? el("details", { class: "counted" }, el("summary", {}, "What counted"), el("ul", {}, ...counted)) : null);
}
