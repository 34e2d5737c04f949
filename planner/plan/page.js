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

  // Clients by what they send: a line to drag.
  const source = document.getElementById("spread-data");
  const spread = source && JSON.parse(source.textContent);
  if (!spread || !spread.length) return;
  const box = document.getElementById("spread");
  const above = document.getElementById("above");
  const total = Number(document.querySelector(".drag").dataset.clients);
  const width = 720, height = 250, left = 56, right = 16, top = 22, bottom = 34;
  const svg = "http://www.w3.org/2000/svg";
  const element = (name, attributes, text) => {
    const e = document.createElementNS(svg, name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const comma = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
  const short = (n) => n >= 1e9 ? n / 1e9 + "G" : n >= 1e6 ? n / 1e6 + "M" : n >= 1e3 ? n / 1e3 + "k" : String(n);
  const share = (n) => n === 0 ? "none" : (100 * n / total).toPrecision(2) + "%";
  let per, most, stops, at, line, beyond, grip;
  const x = (value) => left + Math.log(value) / Math.log(most) * (width - left - right);
  const y = (clients) => height - bottom - (clients > 0 ? (Math.log10(clients) + 0.3) / (Math.log10(total) + 0.3) : 0) * (height - top - bottom);
  const exceed = (limit) => {
    let within = 0;
    for (let i = 0; i < per.values.length && per.values[i] <= limit; i++) within = per.clients[i];
    return total - within;
  };
  const move = (to) => {
    at = Math.min(Math.max(to, 0), stops.length - 1);
    const limit = stops[at], clients = exceed(limit);
    line.setAttribute("d", `M${x(limit)} ${top - 8}V${height - bottom}`);
    beyond.setAttribute("x", x(limit));
    beyond.setAttribute("width", width - right - x(limit));
    grip.setAttribute("cx", x(limit));
    const text = `${comma(limit)} in one ${per.per}: ${comma(clients)} of ${comma(total)} clients sent more (${share(clients)})`;
    above.textContent = text;
    grip.setAttribute("aria-valuenow", limit);
    grip.setAttribute("aria-valuetext", text);
  };
  const keys = {
    ArrowRight: () => at + 1, ArrowUp: () => at + 1, ArrowLeft: () => at - 1, ArrowDown: () => at - 1,
    PageUp: () => at + 10, PageDown: () => at - 10, Home: () => 0, End: () => stops.length - 1,
  };
  // The line stops at whole numbers: every one at first, then some 2% apart.
  const stopsTo = (most) => {
    const all = [];
    for (let n = 1; n < most; n = Math.max(n + 1, Math.round(n * 1.02))) all.push(n);
    return [...all, most];
  };
  const draw = (index) => {
    per = spread[index];
    most = Math.max(10, per.values[per.values.length - 1]);
    stops = stopsTo(most);
    const picture = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Clients that sent more than so much in one ${per.per}` });
    for (let n = 1; n <= total; n *= 10) {
      picture.append(element("path", { class: "grid", d: `M${left} ${y(n)}H${width - right}` }));
      picture.append(element("text", { x: left - 6, y: y(n) + 4, class: "end" }, short(n)));
    }
    for (let n = 1; n <= most; n *= 10) picture.append(element("text", { x: x(n), y: height - 10, class: "middle" }, short(n)));
    let path = `M${x(1)} ${y(exceed(0))}`;
    per.values.forEach((v) => { path += `H${x(v)}V${y(exceed(v))}`; });
    beyond = element("rect", { class: "beyond", y: top - 8, height: height - bottom - top + 8 });
    line = element("path", { class: "limit" });
    grip = element("circle", { class: "grip", cy: top - 10, r: 10, tabindex: 0, role: "slider", "aria-label": `Limit in one ${per.per}`, "aria-valuemin": 1, "aria-valuemax": most });
    picture.append(beyond, element("path", { class: "curve", d: path }));
    picture.append(element("path", { class: "axis", d: `M${left} ${height - bottom}H${width - right}` }), line, grip);
    const drag = (event) => {
      const place = picture.getBoundingClientRect();
      const part = ((event.clientX - place.left) / place.width * width - left) / (width - left - right);
      const wanted = Math.min(most, Math.pow(most, Math.max(0, part)));
      const next = stops.findIndex((n) => n >= wanted);
      move(next > 0 && wanted - stops[next - 1] < stops[next] - wanted ? next - 1 : next);
    };
    picture.addEventListener("pointerdown", (event) => { picture.setPointerCapture(event.pointerId); drag(event); });
    picture.addEventListener("pointermove", (event) => { if (picture.hasPointerCapture(event.pointerId)) drag(event); });
    grip.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      move(keys[event.key]());
    });
    box.replaceChildren(picture);
    move(stops.findIndex((n) => exceed(n) <= total / 100)); // 1% of the clients
  };
  for (const input of document.querySelectorAll('input[name="per"]')) {
    input.addEventListener("change", () => draw(Number(input.value)));
    if (input.checked) draw(Number(input.value));
  }
})();
