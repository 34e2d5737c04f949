// What an operator does to a client, and takes back: each act asks for how long,
// why, and whether that is meant.

import { ask, get, post, query } from "./api.js";
import { el, long, say } from "./dom.js";
import { may } from "./session.js";
import { number, when } from "./words.js";

// keyQuery names a rule and a key. One that is no UTF-8 goes byte by byte.
function keyQuery(path, r) {
  if (!r.key_base64) return query(path, { rule: r.rule, key: r.key });
  const bytes = [...atob(r.key_base64)].map((c) => `%${c.charCodeAt(0).toString(16).padStart(2, "0")}`).join("");
  return `${query(path, { rule: r.rule })}&key=${bytes}`;
}

// more doubles the count of a limit, as a beginning.
const more = (limit) => limit.replace(/^[\d_,]+/, (n) => String(2 * Number(n.replace(/[_,]/g, ""))));

// list cuts a list of limits at its commas, but for those in a number, as in 1,000/h.
const list = (text) => text.split(/,(?!\d{3}(?![\d_]))|(?<!\d),|(?<=[a-z] +[\d_,]+),(?=\d{3} *(?:\/|[a-z]+ *\/|per\b))/).map((l) => l.trim()).filter(Boolean);

const own = (r) => (r.override?.limits ?? r.limits.filter((l) => l.capacity > 0).map((l) => l.limit)).map((l) => more(l)).join(", ");

// limited reports whether overrides have an effect under a rule: one that is an action alone has no limits.
const limited = (r) => r.limits.some((l) => l.capacity > 0 || l.variant);

// kinds are the acts: which role, which fields, and what is sent.
const kinds = {
  raise: {
    name: "Raise…", title: "Other limits for this client", does: "Sets limits",
    fields: (r) => [limits(r), lasts("1h"), reason()],
    send: (r, v) => ask("PUT", keyQuery("v1/override", r), { limits: list(v.limits), for: v.for, reason: v.reason }),
    when: (r) => !r.override?.block && limited(r),
  },
  unlimited: {
    name: "No limit…", title: "No limit for this client", does: "Lets all pass",
    fields: () => [lasts("1h"), reason()],
    send: (r, v) => ask("PUT", keyQuery("v1/override", r), { unlimited: true, for: v.for, reason: v.reason }),
    when: (r) => !r.override?.block && limited(r),
  },
  remove: {
    name: "Remove the override…", title: "The rule’s own limits again", does: "Removes the override",
    fields: () => [reason()],
    send: (r, v) => ask("DELETE", `${keyQuery("v1/override", r)}&${new URLSearchParams({ reason: v.reason })}`),
    when: (r) => r.override && !r.override.block,
  },
  block: {
    name: "Block…", title: "Block this client", does: "Denies all",
    fields: () => [lasts("1h"), reason()],
    send: (r, v) => ask("PUT", keyQuery("v1/block", r), { for: v.for, reason: v.reason }),
    when: (r) => !r.override?.block && limited(r),
  },
  unblock: {
    name: "Unblock…", title: "Let this client pass again", does: "Ends the block or the ban",
    fields: () => [reason()],
    send: (r, v) => ask("DELETE", `${keyQuery("v1/block", r)}&${new URLSearchParams({ reason: v.reason })}`),
    when: (r) => r.override?.block || r.limits.some((l) => l.banned),
  },
  reset: {
    name: "Reset…", title: "Forget what this client has used", does: "As if never used",
    fields: () => [reason()],
    send: (r, v) => post(keyQuery("v1/reset", r), { reason: v.reason }),
    when: (r) => r.limits.some((l) => l.used > 0),
  },
  refund: {
    name: "Refund…", title: "Give units back", does: "Gives back",
    fields: () => [field("cost", "Units", { type: "number", min: "1", value: "1", required: true }), reason()],
    send: (r, v) => post(keyQuery("v1/refund", r), { cost: Number(v.cost), reason: v.reason }),
    when: (r) => r.limits.some((l) => l.used > 0),
  },
};

const field = (name, label, attributes) => el("label", {}, label, el("input", { name, type: "text", autocomplete: "off", ...attributes }));
const limits = (r) => field("limits", "Limits, with commas between them", { ".value": own(r), required: true, spellcheck: "false" });
const lasts = (value) => field("for", "For how long, such as 30m, 1h or 7d; empty is for good", { ".value": value });
const reason = () => field("reason", "Why, for the audit", { required: true, maxlength: "500" });

/** actions are buttons for what can be done to a key under a rule; done is called after an act. */
export function actions(done) {
  const node = el("div", { class: "actions", hidden: true });
  let rule = null;
  for (const kind of Object.values(kinds)) node.append(el("button", { type: "button", onclick: () => confirm(kind, rule, done) }, kind.name));
  return {
    node,
    set(r) {
      rule = r;
      node.hidden = !may("operator") || r.missing === true;
      Object.values(kinds).forEach((kind, i) => (node.children[i].hidden = !kind.when(r)));
    },
  };
}

/** confirm shows what will be done, asks for what is needed, and does it. */
function confirm(kind, r, done) {
  const wrong = el("p", { class: "bad", role: "alert" });
  const button = el("button", { class: "main" }, "Confirm");
  const form = el("form", {
    onsubmit: async (e) => {
      e.preventDefault();
      button.disabled = true;
      try {
        const did = await kind.send(r, Object.fromEntries(new FormData(form)));
        dialog.close();
        say(`${kind.does}: done. ${did?.note ?? ""}`);
        done();
      } catch (err) {
        wrong.textContent = err.message;
        form.querySelector(`[name="${err.field}"]`)?.setAttribute("aria-invalid", "true");
      }
      button.disabled = false;
    },
  }, ...kind.fields(r), wrong, el("div", { class: "actions" }, button, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
  const dialog = el("dialog", { "aria-labelledby": "act-title", onclose: () => dialog.remove() }, el("h2", { id: "act-title" }, kind.title),
    el("p", { class: "note" }, "Rule ", el("code", {}, r.rule), r.key ? ", key " : "", r.key ? el("code", {}, r.key) : ""), form);
  document.body.append(dialog);
  dialog.showModal();
}

/** undo takes an act back, after a question. */
export function undo(act, done) {
  const wrong = el("p", { class: "bad", role: "alert" });
  const form = el("form", {
    onsubmit: async (e) => {
      e.preventDefault();
      try {
        const did = await post("v1/undo", { act: act.number });
        dialog.close();
        say(did.did);
        done();
      } catch (err) {
        wrong.textContent = err.message;
      }
    },
  }, wrong, el("div", { class: "actions" }, el("button", { class: "main" }, "Confirm"), el("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
  const dialog = el("dialog", { "aria-labelledby": "act-title", onclose: () => dialog.remove() }, el("h2", { id: "act-title" }, `Take act ${act.number} back`),
    el("p", {}, `${act.act} by ${act.author} at ${when(act.at)}: ${act.now || "nothing"}, before ${act.was && act.act.startsWith("override") ? act.was : "nothing of its own"}`), form);
  document.body.append(dialog);
  dialog.showModal();
}

const undoes = "undo of act ";
const overrides = ["override set", "override remove"];
const undoable = new Set([...overrides, "overrides load", "reset", "refund"]);

/** audit returns a page of acts before a number, each with whether it can be taken back, as far as it
 * and the later pages that were asked for with the same later say. */
export async function audit(before, n = 100, later = { undone: new Set(), held: new Map() }) {
  const { acts } = await get(query("v1/audit", { before: before || "", n }));
  for (const a of acts) {
    if (a.reason.startsWith(undoes)) later.undone.add(Number(a.reason.slice(undoes.length)));
    const holds = undoable.has(a.act) && !later.undone.has(a.number) && !a.reason.startsWith(undoes);
    const place = overrides.includes(a.act) ? `${a.rule} ${a.key_hash}` : null;
    a.undoable = may("operator") && holds && !(later.held.get(place) > a.number);
    if (holds && place) later.held.set(place, Math.max(a.number, later.held.get(place) ?? 0));
  }
  return acts;
}

/** actCells are what a table says of an act. */
export function actCells(a, done) {
  const from = a.act.startsWith("override") && (a.was || a.now) ? `${a.was || "none"} → ${a.now || "none"}` : a.now.startsWith("[") ? "" : a.now;
  return [el("td", {}, number(a.number)), el("td", {}, when(a.at)), el("td", { class: "word" }, a.author), el("td", { class: "word" }, a.act),
    el("td", { class: "word wide" }, long(from)), el("td", { class: "word wide" }, long(a.reason)),
    el("td", {}, a.undoable && el("button", { type: "button", "aria-label": `Undo act ${a.number}`, onclick: () => undo(a, done) }, "Undo"))];
}

export const actHeads = [["act"], ["at"], ["who", "word"], ["did", "word"], ["what", "word"], ["why", "word"], ["take back"]];
