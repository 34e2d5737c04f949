// Keys of clients: hashes, until an operator asks for one, which the server notes in
// its audit.

import { post } from "./api.js";
import { el } from "./dom.js";
import { may } from "./session.js";

const most = 500;
const known = new Map(); // "rule hash" to what was answered; the oldest go first

/** keyCell shows a key by its hash, with what reveals it, but for the one of a rule that counts all together. */
export function keyCell(of, failed) {
  const node = el("span", { class: "key" }, of.key === "" && "one key for all");
  if (of.key === "") return node;
  const { rule, key_hash: hash } = of;
  const seen = known.get(`${rule} ${hash}`);
  if (seen) {
    node.append(seen.attributes && Object.keys(seen.attributes).length ? el("a", { href: clientLink(seen.attributes) }, seen.key) : el("code", {}, seen.key));
    return node;
  }
  node.append(el("code", {}, hash.slice(0, 16)));
  if (may("operator")) {
    node.append(el("button", {
      type: "button", "aria-label": `Reveal key ${hash.slice(0, 16)}`,
      onclick: async () => {
        try {
          remember(rule, hash, await post("v1/reveal", { rule, key_hash: hash }));
          const shown = keyCell(of, failed);
          node.replaceWith(shown);
          shown.querySelector("a")?.focus();
        } catch (err) {
          failed(err);
        }
      },
    }, "Reveal"));
  }
  return node;
}

function remember(rule, hash, answer) {
  known.set(`${rule} ${hash}`, answer);
  if (known.size > most) known.delete(known.keys().next().value);
}

/** clientLink is where the story of a client is. */
const clientLink = (attributes) => `#/client?${new URLSearchParams(attributes)}`;

/** ruleLink is where a rule is. */
export const ruleLink = (rule) => `#/rule?${new URLSearchParams({ name: rule })}`;
