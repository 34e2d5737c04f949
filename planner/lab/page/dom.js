// Elements, made without markup in strings: the page's policy allows no other
// way.

/** el makes an element: attributes, listeners (on…) and properties (.name). */
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name.startsWith(".")) e[name.slice(1)] = value;
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

export const byID = (id) => document.getElementById(id);
