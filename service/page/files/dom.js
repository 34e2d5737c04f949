// Elements, made without markup in strings: the page's policy allows no other
// way.

const svgs = new Set(["svg", "path", "rect", "line", "text", "g", "title"]);

/** el makes an element: attributes, listeners (on…) and properties (.name). */
export function el(tag, attributes = {}, ...children) {
  const e = svgs.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name.startsWith(".")) e[name.slice(1)] = value;
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

export const byID = (id) => document.getElementById(id);

/** put gives an element a text, and touches nothing where it has it. */
export function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/**
 * keep makes the children of an element those of a list, in its order: one that
 * is there already stays the element that it is, with its focus. key names an
 * item, make makes its element, and set fills it.
 */
export function keep(parent, items, key, make, set) {
  const had = new Map([...parent.children].map((e) => [e.dataset.key, e]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let e = had.get(name);
    if (e) had.delete(name);
    else {
      e = make(item);
      e.dataset.key = name;
    }
    if (e === at) at = at.nextElementSibling;
    else parent.insertBefore(e, at);
    set(e, item);
  }
  for (const e of had.values()) e.remove();
}

/** long shows two lines of a text that may be long, and all of it once it is opened. */
export const long = (text) => (text.length > 60 ? el("details", { class: "long" }, el("summary", {}, text)) : text);

/** table makes a table in a box that scrolls. heads are [text, class]; where it is narrow, each cell has its own. */
export function table(caption, heads, ...rows) {
  const body = el("tbody");
  new MutationObserver((changes) => {
    for (const tr of changes.flatMap((c) => [...c.addedNodes])) heads.forEach(([text], i) => (tr.cells[i].dataset.head = text));
  }).observe(body, { childList: true });
  body.append(...rows);
  const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(([text, kind]) => el("th", { scope: "col", class: kind }, text)))), body));
  return { box, body, heads };
}

/** say tells those who do not see what has changed. */
export const say = (text) => put(byID("said"), text);
