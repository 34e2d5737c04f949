"use strict";
(() => {
  // What one of the limits would have denied.
  for (const input of document.querySelectorAll('input[name="shown"]')) {
    input.addEventListener("change", () => {
      for (const path of document.querySelectorAll("svg path.denied")) {
        path.classList.toggle("hidden", !path.classList.contains("shown-" + input.value));
      }
    });
  }
})();
