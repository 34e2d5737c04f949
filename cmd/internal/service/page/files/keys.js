// Keys of clients: hashes, until somebody who may asks for one, which the server
// notes in its audit.

import { post } from "./api.js";
import { el } from "./dom.js";
import { may } from "./session.js";

const most = 500;
const known = new Map(); // "rule hash" to key; the oldest go first

/** keyCell shows a key by its hash, with what reveals it. */
export function keyCell(rule, hash, failed) {
  const node = el("span", { class: "key" });
  const key = known.get(`${rule} ${hash}`);
  if (key !== undefined) {
    node.append(el("a", { href: keyLink(rule, key) }, key || "(one key for all)"));
    return node;
  }
  node.append(el("code", {}, hash.slice(0, 16)));
  if (may("operator")) {
    node.append(el("button", {
      type: "button", "aria-label": `Reveal key ${hash.slice(0, 16)}`,
      onclick: async () => {
        try {
          remember(rule, hash, (await post("v1/reveal", { rule, key_hash: hash })).key);
          node.replaceWith(keyCell(rule, hash, failed));
        } catch (err) {
          failed(err);
        }
      },
    }, "Reveal"));
  }
  return node;
}

function remember(rule, hash, key) {
  known.set(`${rule} ${hash}`, key);
  if (known.size > most) known.delete(known.keys().next().value);
}

/** keyLink is where the story of a key is. */
export const keyLink = (rule, key) => `#/client?${new URLSearchParams({ rule, key })}`;

/** ruleLink is where a rule is. */
export const ruleLink = (rule) => `#/rule?${new URLSearchParams({ name: rule })}`;
