// The limits beside one another: one line each.

import { byID, el } from "./dom.js";
import { about, duration, number } from "./words.js";

const heads = [
  ["Limit"], ["passed"], ["denied"], ["worst in a period", "the most that one key started in any period of the limit, and what its text promises"],
  ["longest wait", "the longest delay in a queue or retry after"],
];

/** compare shows a table of the limits of an answer. */
export function compare(answer) {
  byID("compare").replaceChildren(
    el("caption", { class: "hidden" }, "The limits beside one another"),
    el("thead", {}, el("tr", {}, ...heads.map(([text, title], i) => el("th", { scope: "col", class: i === 0 ? "word" : undefined, title }, text)))),
    el("tbody", {}, ...answer.rows.map(line)));
}

function line(row) {
  const worst = el("td", { class: row.most > row.promised ? "over" : undefined }, el("b", {}, number(row.most)), ` in ${duration(row.most_in)}, promised ${number(row.promised)}`);
  const wait = row.longest_retry < 0 ? -1 : Math.max(row.longest_wait, row.longest_retry);
  return el("tr", {}, el("th", { scope: "row", class: "word" }, el("code", {}, row.limit)),
    el("td", {}, number(row.passed + row.delayed)), el("td", {}, number(row.denied)), worst, el("td", {}, wait === 0 ? "none" : about(wait)));
}
