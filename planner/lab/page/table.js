// The timeline as a table, for those who do not see it or want the numbers.

import { el } from "./dom.js";
import { about, duration, number, verdicts } from "./words.js";

const most = 500; // rows: more would make the page slow

/** table lists the requests of a row, or its columns where they are too many. */
export function table(row) {
  return row.each ? requests(row) : stretches(row);
}

function grid(caption, heads, rows) {
  return el("table", {}, el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, ...heads.map(([text, word]) => el("th", { scope: "col", class: word ? "word" : undefined }, text)))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((text, i) => el("td", { class: heads[i][1] ? "word" : undefined }, text))))));
}

function requests(row) {
  const { each, answer, data } = row;
  const several = answer.clients.length > 1;
  const heads = [["request"], ["at"], ["verdict", true], ["in use before"], ["remaining"], ["retry after"], ["delay"]];
  if (several) heads.splice(2, 0, ["client", true]);
  const rows = [];
  for (let j = 0; j < Math.min(data.requests, most); j++) {
    const cells = [number(j + 1), duration(row.at[j]), verdicts[each.verdicts[j]], number(each.before[j]), number(each.remaining[j]),
      each.verdicts[j] === "d" ? about(each.retry_after[j]) : "", each.delay?.[j] ? about(each.delay[j]) : ""];
    if (several) cells.splice(2, 0, answer.clients[answer.who?.[j] ?? 0]);
    rows.push(cells);
  }
  const caption = `Requests under ${data.limit}` + (data.requests > most ? `: the first ${most} of ${data.requests}` : "");
  return grid(caption, heads, rows);
}

function stretches(row) {
  const { columns, limit } = row.data;
  const heads = [["from"], ["passed"], ["passed, to wait"], ["denied"], ["remaining at its end"]];
  return grid(`Stretches of ${about(row.answer.column)} under ${limit}`, heads, columns.passed.map((n, i) => [
    about(i * row.answer.column), number(n), number(columns.delayed[i]), number(columns.denied[i]), number(columns.remaining[i])]));
}
