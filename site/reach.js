// What is wider than its place can be scrolled by keys too.
"use strict";
const sized = new ResizeObserver((all) => {
  for (const { target } of all) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
for (const one of document.querySelectorAll("main pre, main table")) {
  if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
  sized.observe(one);
}
