// Search over index.json, which is loaded when the field is first used.
"use strict";
const field = document.getElementById("search");
const found = document.getElementById("found");
let index;
field.addEventListener("focus", async () => {
  if (!index) index = await (await fetch("index.json")).json();
  show();
}, { once: true });
field.addEventListener("input", show);

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.replaceChildren();
  found.hidden = words.length === 0;
  if (!index || words.length === 0) return;
  const score = (one) => {
    const title = one.t.toLowerCase(), text = one.x.toLowerCase();
    let sum = 0;
    for (const word of words) {
      if (title.includes(word)) sum += 10;
      else if (text.includes(word)) sum += 1;
      else return 0;
    }
    return sum;
  };
  const best = index.map((one) => [score(one), one]).filter(([n]) => n > 0).sort((a, b) => b[0] - a[0]).slice(0, 12);
  for (const [, one] of best) {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = one.p + (one.i ? "#" + one.i : "");
    link.textContent = one.t + " (" + one.p.replace(".html", "") + ")";
    item.append(link);
    found.append(item);
  }
  if (best.length === 0) {
    const item = document.createElement("li");
    item.textContent = "Nothing found.";
    found.append(item);
  }
}
