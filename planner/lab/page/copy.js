// A limit in forms to paste elsewhere.

import { byID, el } from "./dom.js";

/** copied puts text on the clipboard and says so on the button. */
export async function copied(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed: mark it and copy";
  }
  setTimeout(() => (button.textContent = before), 1600);
}

/** offer opens the dialog with the forms of a limit. */
export function offer(limit, copy) {
  const forms = [["Rule (YAML)", "rule", copy.rule], ["Go", "go", copy.go], ["Command", "simulate", copy.simulate]];
  byID("copies-title").textContent = `Copy ${limit}`;
  byID("forms").replaceChildren(...forms.map(([title, id, text]) => pasted("h3", title, `copy-${id}`, text)));
  byID("copies").showModal();
}

/** pasted is text to copy, with a button in its heading. */
export function pasted(heading, title, id, text) {
  const button = el("button", { type: "button", "aria-label": `Copy: ${title}` }, "Copy");
  button.addEventListener("click", () => copied(button, text));
  return el("div", { class: "pasted" }, el(heading, {}, title, button), el("pre", { id, tabindex: 0, role: "region", "aria-label": title }, text));
}
