// A log that is dropped on the page or chosen: it goes to the lab, and comes
// back as a report, or as arrivals.

import { plan } from "./api.js";
import { byID, el } from "./dom.js";
import { report } from "./report.js";
import { number } from "./words.js";

/** logs readies the page for logs. page has what is asked of it. */
export function logs(page) {
  const { about } = page;
  const input = el("input", { type: "file", id: "log-file", "aria-describedby": "log-note" });
  const zone = el("div", { id: "drop" }, el("label", { for: "log-file" }, "Drop an access log here, or choose it"), input,
    el("p", { class: "note", id: "log-note" }, `The lab on this machine reads it and keeps nothing of it. gzip and zstd too; up to ${megabytes(about.max_log)}.`));
  const key = el("input", { type: "text", id: "log-key", value: "ip" });
  const share = el("input", { type: "text", id: "log-share", class: "short", value: "0.1%" });
  const of = el("select", { "aria-label": "Deny at most so many of" }, el("option", {}, "of clients"), el("option", {}, "of requests"));
  const left = el("input", { type: "text", id: "log-without", placeholder: "none" });
  const proxies = el("input", { type: "text", id: "log-proxies", placeholder: "none, or 10.0.0.0/8" });
  const again = el("button", { type: "button", id: "log-again", disabled: true }, "Plan again");
  const bar = el("progress", { max: 1, "aria-label": "The log on its way" });
  const stop = el("button", { type: "button", id: "log-stop" }, "Stop");
  const doing = el("span");
  const busy = el("div", { class: "busy", hidden: true }, doing, bar, stop);
  const error = el("p", { class: "error", id: "log-error", role: "alert", hidden: true });
  const said = el("p", { class: "hidden", id: "log-said", role: "status" });
  byID("log-group").hidden = false;
  byID("log").replaceChildren(zone, busy, error, said,
    el("div", { class: "control" }, el("label", { for: "log-key" }, "A client is"), el("span", { class: "value" }, key)),
    el("div", { class: "control" }, el("label", { for: "log-share" }, "Deny at most"), el("span", { class: "value" }, share, of)),
    el("div", { class: "control wide" }, el("label", { for: "log-without" }, "Leave out clients, with commas between"), el("span", { class: "value" }, left)),
    el("div", { class: "control wide" }, el("label", { for: "log-proxies" }, "Trusted proxies, with commas between"), el("span", { class: "value" }, proxies)), el("div", {}, again));
  const open = byID("open-log");
  open.hidden = false;
  open.addEventListener("click", () => {
    dropped = true;
    input.click();
  });

  let file = null;
  let shown = null;
  let running = null;
  let dropped = false; // the last log came by a drop or the button on top

  // fail says what is wrong where one looks: on top of the results what came by
  // a drop, else in the panel. A report of another log goes away.
  const fail = (text) => {
    hide();
    if (dropped) byID("results").prepend(error);
    else busy.after(error);
    error.textContent = text;
    error.hidden = false;
    byID("log-group").open = true;
    requestAnimationFrame(() => error.scrollIntoView({ block: "nearest" })); // once the report has gone
  };

  function hide() {
    shown = null;
    byID("report").replaceChildren();
    byID("report").hidden = true;
  }

  // query is what is asked of the log.
  function query(more) {
    const q = new URLSearchParams({ name: file.name || "access.log", key: key.value.trim() || "ip" });
    if (file.lastModified) q.set("latest", new Date(file.lastModified).toISOString());
    if (proxies.value.trim()) q.set("trusted_proxies", proxies.value.trim());
    for (const [name, value] of more) q.append(name, value);
    return q;
  }

  // ask sends the log, and returns the answer; undefined if it was stopped.
  async function ask(what, more) {
    running?.stop();
    error.hidden = true;
    byID("log-group").open = true; // it shows how far it has come
    busy.hidden = false;
    doing.textContent = `Sending ${file.name}…`;
    bar.value = 0;
    const mine = plan(file, query(more), (sent, all) => {
      bar.value = all > 0 ? sent / all : 1;
      if (sent < all) return;
      doing.textContent = what;
      bar.removeAttribute("value");
    });
    running = mine;
    try {
      return await mine.answer;
    } catch (err) {
      fail(err.message);
      return undefined;
    } finally {
      if (running === mine) {
        running = null;
        busy.hidden = true;
      }
    }
  }

  // untold says that nobody has said what may be denied: then a limit may stand at a clear cliff.
  const untold = () => share.value === share.defaultValue && of.selectedIndex === 0;

  async function look() {
    const out = left.value.split(",").map((k) => k.trim()).filter(Boolean);
    const answer = await ask("Deciding every request…", [...page.limits().map((l) => ["limit", l]), ...out.map((k) => ["ignore_key", k]), ["deny_at_most", untold() ? "default" : `${share.value.trim()} ${of.value}`]]);
    if (!answer) return;
    shown = report(answer, { colours: page.colours, compare: page.compare, close, load, without });
    byID("report").replaceChildren(...shown.nodes);
    byID("report").hidden = false;
    shown.paint();
    said.textContent = `${file.name}: ${number(answer.log.requests)} requests of ${number(answer.log.clients)} clients.` +
      (answer.choice ? ` To choose: ${answer.choice.limit}.` : "");
    byID("report").scrollIntoView({ block: "nearest" });
    byID("report").focus({ preventScroll: true });
  }

  function without(clients) {
    left.value = [...new Set([...left.value.split(",").map((k) => k.trim()).filter(Boolean), ...clients])].join(", ");
    look();
  }

  async function load(client) {
    const a = await ask("Looking for its arrivals…", client === "" ? [["arrivals", "true"]] : [["arrivals", "true"], ["client", client]]);
    if (!a) return;
    const whose = client === "" ? "everyone, under one key" : client;
    const part = a.times.length < a.requests ? `: the first ${number(a.times.length)} of ${number(a.requests)}` : `: ${number(a.requests)} requests`;
    page.show({ times: a.times, horizon: a.horizon, about: `${file.name}, ${whose}${part}, from ${a.start.replace("T", " ").replace("Z", "")} UTC on.` });
    said.textContent = "They are on the timeline.";
    byID("sketch").scrollIntoView({ block: "start" });
  }

  function close() {
    hide();
    input.focus();
  }

  function take(files) {
    if (files.length === 0) return;
    if (files.length > 1) return fail("One log at a time: stint plan takes many.");
    if (files[0].size > about.max_log) return fail(`${files[0].name} is over ${megabytes(about.max_log)}: pack it, take a part of it, or let stint plan read it from a terminal.`);
    [file] = files;
    again.disabled = false;
    look();
  }

  input.addEventListener("click", (e) => {
    if (e.isTrusted) dropped = false; // by the field itself, in the panel
  });
  input.addEventListener("change", () => take(input.files));
  again.addEventListener("click", () => {
    dropped = false;
    look();
  });
  stop.addEventListener("click", () => running?.stop());
  for (const field of [key, share, left, proxies]) {
    field.addEventListener("keydown", (e) => {
      if (e.key !== "Enter" || !file) return;
      dropped = false;
      look();
    });
  }
  receive((files) => {
    dropped = true;
    take(files);
  });
  return { paint: () => shown?.paint() };
}

// receive takes what is dropped anywhere on the page.
function receive(take) {
  const over = (on) => document.body.classList.toggle("dropping", on);
  const carries = (e) => e.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (e) => {
    if (!carries(e)) return;
    e.preventDefault();
    e.dataTransfer.dropEffect = "copy";
    over(true);
  });
  addEventListener("dragleave", (e) => e.relatedTarget === null && over(false));
  addEventListener("drop", (e) => {
    over(false);
    if (!carries(e)) return;
    e.preventDefault();
    byID("log-file").files = e.dataTransfer.files; // its name stands there too
    take(e.dataTransfer.files);
  });
}

const megabytes = (bytes) => (bytes >= 1 << 20 ? `${number(Math.floor(bytes / (1 << 20)))} MiB` : `${number(bytes)} bytes`);
