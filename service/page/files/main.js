// The page: which of its views is seen, and who sees it. The overview is there at
// once; the files of the other views come when one of them is asked for, or when
// the overview has been drawn.

import { byID, el, put, say } from "./dom.js";
import { overview } from "./overview.js";
import { may, refresh, session, signIn, signOut } from "./session.js";

const lists = () => import("./lists.js");
const rules = () => import("./rules.js");

// views are what there is: who may see it, what it is called in the menu, and what
// shows it.
const views = [
  { path: "", title: "Overview", role: "", load: () => overview },
  { path: "client", title: "Client", role: "", load: async () => (await import("./client.js")).client },
  { path: "rules", title: "Rules", role: "viewer", load: async () => (await rules()).ruleList },
  { path: "rule", title: "Rule", role: "viewer", load: async () => (await rules()).rule, menu: false, under: "rules" },
  { path: "edit", title: "Edit rules", role: "viewer", load: async () => (await import("./editor.js")).editor, menu: false, under: "rules" },
  { path: "history", title: "Revisions", role: "viewer", load: async () => (await import("./history.js")).history, menu: false, under: "rules" },
  { path: "overrides", title: "Overrides", role: "operator", load: async () => (await lists()).overrides },
  { path: "audit", title: "Audit", role: "operator", load: async () => (await lists()).auditLog },
  { path: "nodes", title: "Nodes", role: "viewer", load: async () => (await lists()).nodeList },
];

let leave = () => {};
let shown = null;
let turn = 0; // of routes

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

// route shows what the address names, unless it names something else by the time
// that the view's files are there.
async function route() {
  const [, path, rest] = location.hash.match(/^#\/?([^?]*)\??(.*)$/) ?? [null, "", ""];
  const view = views.find((v) => v.path === path) ?? views[0];
  const routed = ++turn;
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
  let show;
  try {
    show = await view.load();
  } catch {
    if (routed === turn) fail(new Error("This view cannot be loaded: the server does not answer. Reload the page when it does."));
  }
  if (!show || routed !== turn) return;
  leave = show(main, { fail, fine, parameters: new URLSearchParams(rest), again: route }) ?? (() => {});
  say(view.title);
}

document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault(); // the address names views
  byID("view").focus();
});
byID("sign").addEventListener("click", async () => {
  try {
    if (session.signed_in) {
      await signOut();
      route();
    } else {
      turn++;
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
await route();
(globalThis.requestIdleCallback ?? setTimeout)(() => Promise.all(views.map((v) => v.load())).catch(() => {})); // what cannot be had now is asked for again
