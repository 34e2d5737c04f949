// Who is at the page, and what they may do. The token is the server's to keep: a
// cookie that scripts cannot read stands for it.

import { ask, get, post } from "./api.js";
import { el } from "./dom.js";

const ranks = ["viewer", "operator", "admin"];

/** session is the operator at the page; role is "" for none. */
export const session = { author: "", role: "", signed_in: false, rules: false, publishes: false, rehearses: false };

/** may reports whether who is here may do what a role may. */
export const may = (role) => session.rules && ranks.indexOf(session.role) >= ranks.indexOf(role);

/** refresh asks who is at the page. */
export async function refresh() {
  Object.assign(session, await get("session"));
}

/** signOut ends the session. */
export async function signOut() {
  Object.assign(session, await ask("DELETE", "session"));
}

/** signIn shows the form. done is called after the sign-in. */
export function signIn(view, why, done) {
  const wrong = el("p", { class: "bad", role: "alert" });
  const field = el("input", { id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
  const form = el("form", {
    onsubmit: async (e) => {
      e.preventDefault();
      try {
        Object.assign(session, await post("session", { token: field.value.trim() }));
        done();
      } catch (err) {
        wrong.textContent = err.message;
        field.setAttribute("aria-invalid", "true");
        field.select();
      }
    },
  }, el("label", {}, "Token", field), wrong, el("div", { class: "actions" }, el("button", { class: "main" }, "Sign in")));
  view.replaceChildren(el("section", { class: "card sign" }, el("h2", {}, "Sign in"), el("p", { class: "note" }, why), form,
    el("p", { class: "note" }, "Where rules are in a database, ", el("code", {}, "stint token make NAME --role operator"),
      " makes a token, and its text is what it printed. Elsewhere a token is a line of the file of ", el("code", {}, "--operator-token-file"), ", or of ", el("code", {}, "--token-file"), " to look only.")));
  field.focus();
}
