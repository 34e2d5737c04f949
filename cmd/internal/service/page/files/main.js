// The page: which of its views is seen, and who sees it.

import { client } from "./client.js";
import { byID, el, put, say } from "./dom.js";
import { editor } from "./editor.js";
import { history } from "./history.js";
import { auditLog, nodeList, overrides } from "./lists.js";
import { overview } from "./overview.js";
import { rule, ruleList } from "./rules.js";
import { may, refresh, session, signIn, signOut } from "./session.js";

// views are what there is: who may see it, and what it is called in the menu.
const views = [
  { path: "", title: "Overview", role: "", show: overview },
  { path: "client", title: "Client", role: "", show: client },
  { path: "rules", title: "Rules", role: "viewer", show: ruleList },
  { path: "rule", title: "Rule", role: "viewer", show: rule, menu: false, under: "rules" },
  { path: "edit", title: "Edit rules", role: "viewer", show: editor, menu: false, under: "rules" },
  { path: "history", title: "Revisions", role: "viewer", show: history, menu: false, under: "rules" },
  { path: "overrides", title: "Overrides", role: "operator", show: overrides },
  { path: "audit", title: "Audit", role: "operator", show: auditLog },
  { path: "nodes", title: "Nodes", role: "viewer", show: nodeList },
];

let leave = () => {};
let shown = null;

function fail(err) {
  byID("trouble").textContent = err.message;
  byID("trouble").hidden = false;
  if (err.status === 401 || err.status === 403) refresh().then(frame, () => {});
}

function fine() {
  byID("trouble").hidden = true;
}

const allowed = (view) => (view.role === "" ? session.role !== "" : may(view.role));

// frame draws what is around the view: the menu, and who is here.
function frame() {
  byID("pages").hidden = session.role === "";
  byID("pages").replaceChildren(...views.filter((v) => v.menu !== false && allowed(v)).map((v) =>
    el("a", { href: `#/${v.path}`, "aria-current": v === shown || v.path === shown?.under ? "page" : undefined }, v.title)));
  put(byID("who"), session.role === "" ? "" : `${session.author}, ${session.role}`);
  byID("sign").hidden = session.role === "" && !session.signed_in;
  put(byID("sign"), session.signed_in ? "Sign out" : "Sign in");
}

// route shows what the address names.
function route() {
  const [, path, rest] = location.hash.match(/^#\/?([^?]*)\??(.*)$/) ?? [null, "", ""];
  const view = views.find((v) => v.path === path) ?? views[0];
  leave();
  leave = () => {};
  fine();
  shown = view;
  frame();
  const main = byID("view");
  if (!allowed(view)) {
    document.title = "Sign in · stint";
    signIn(main, session.role === "" ? "This server asks who you are." : `This is for the role ${view.role}.`, route);
    return;
  }
  document.title = `${view.title} · stint`;
  main.replaceChildren();
  leave = view.show(main, { fail, fine, parameters: new URLSearchParams(rest), again: route }) ?? (() => {});
  say(view.title);
}

byID("sign").addEventListener("click", async () => {
  try {
    if (session.signed_in) {
      await signOut();
      route();
    } else {
      leave();
      leave = () => {};
      signIn(byID("view"), "Show the token that you were given.", route);
    }
  } catch (err) {
    fail(err);
  }
});
addEventListener("hashchange", route);
addEventListener("connection", async (e) => {
  if (e.detail) return fine();
  fail(new Error("The stream of events has ended; it is tried again every few seconds."));
  const was = session.role;
  await refresh().catch(() => {});
  if (session.role !== was) route(); // a token that is revoked, or a server that began anew
});

await refresh().catch(fail);
route();
