// What the field under the cursor means, by the schema of rules files.

import { get } from "./api.js";
import { el } from "./dom.js";

const resolve = (schema, part) => {
  let s = part;
  for (let i = 0; s?.$ref && i < 8; i++) s = { ...s.$ref.split("/").slice(1).reduce((at, name) => at?.[name], schema), ...Object.fromEntries(Object.entries(s).filter(([name]) => name !== "$ref")) };
  return s ?? {};
};

// inner returns the map within a schema: its own, of a list's items, or of a choice.
function inner(schema, part) {
  const s = resolve(schema, part);
  if (s.properties || s.additionalProperties?.$ref || s.additionalProperties?.properties) return s;
  if (s.items) return inner(schema, s.items);
  for (const one of [...(s.oneOf ?? []), ...(s.anyOf ?? [])]) {
    const found = inner(schema, one);
    if (found) return found;
  }
  return null;
}

// trail returns the names of the fields around a place in a document, the
// outermost first, by how far their lines are indented.
export function trail(text, at) {
  const lines = text.slice(0, text.indexOf("\n", at) < 0 ? text.length : text.indexOf("\n", at)).split("\n");
  const names = [];
  let limit = Infinity;
  for (let i = lines.length - 1; i >= 0 && limit > 0; i--) {
    const m = lines[i].match(/^(\s*(?:- +)*)([A-Za-z_][\w.-]*)\s*:/);
    if (!m || m[1].length >= limit || /^\s*#/.test(lines[i])) continue;
    names.unshift(m[2]);
    limit = m[1].length;
    const dash = m[1].indexOf("-"); // fields of the same map stand beside it, its parent further left
    if (dash >= 0) limit = dash + 1;
    if (limit === 0) break;
  }
  return names;
}

/** help fills an element with what the schema says; what it returns is called with the text and the place. */
export function help(node, fail) {
  let schema = null;
  let last = null;
  get("v1/rules/schema").then((s) => {
    schema = s;
    show([]);
  }, fail);

  function show(names) {
    let at = schema;
    let field = null;
    for (const name of names) {
      const map = at && inner(schema, at);
      field = map?.properties?.[name] ?? (map?.additionalProperties ? map.additionalProperties : null);
      if (!field) break;
      at = field;
    }
    const described = field ? resolve(schema, field) : null;
    const map = names.length && field ? inner(schema, field) : inner(schema, at ?? schema);
    const words = described?.enum ?? described?.oneOf?.find((o) => o.enum)?.enum;
    const fields = Object.entries(map?.properties ?? {});
    node.replaceChildren(el("h3", {}, names.length ? el("code", {}, names.join(" › ")) : "Fields"),
      el("p", {}, described?.description ?? (names.length && !field ? "There is no such field." : schema.description)),
      words ? el("p", { class: "note" }, "One of ", ...words.flatMap((w, i) => [i ? ", " : "", el("code", {}, String(w))])) : "",
      fields.length ? el("dl", {}, ...fields.flatMap(([name, f]) => [el("dt", {}, el("code", {}, name)), el("dd", {}, resolve(schema, f).description ?? resolve(schema, f).type ?? "")])) : "");
  }

  return (text, at) => {
    if (!schema) return;
    const names = trail(text, at);
    const path = names.join(" ");
    if (path === last) return;
    last = path;
    show(names);
  };
}
