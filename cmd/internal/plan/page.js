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
  const slider = document.getElementById("line");
  const above = document.getElementById("above");
  const total = Number(document.querySelector(".drag").dataset.clients);
  const width = 720, height = 240, left = 56, right = 16, top = 12, bottom = 28;
  const svg = "http://www.w3.org/2000/svg";
  const element = (name, attributes, text) => {
    const e = document.createElementNS(svg, name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const comma = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
  let per, most, line, grip;
  const x = (value) => left + Math.log(value) / Math.log(most) * (width - left - right);
  const y = (clients) => height - bottom - (clients > 0 ? (Math.log10(clients) + 0.3) / (Math.log10(total) + 0.3) : 0) * (height - top - bottom);
  const value = () => Math.max(1, Math.round(Math.pow(most, slider.value / 1000)));
  const exceed = (limit) => {
    let within = 0;
    for (let i = 0; i < per.values.length && per.values[i] <= limit; i++) within = per.clients[i];
    return total - within;
  };
  const move = () => {
    const limit = value(), clients = exceed(limit);
    line.setAttribute("d", `M${x(limit)} ${top}V${height - bottom}`);
    grip.setAttribute("cx", x(limit));
    const text = `${comma(limit)} in one ${per.per}: ${comma(clients)} of ${comma(total)} clients sent more (${(100 * clients / total).toPrecision(2)}%)`;
    above.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };
  const draw = (index) => {
    per = spread[index];
    most = Math.max(10, per.values[per.values.length - 1]);
    const picture = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Clients that sent more than so much in one ${per.per}` });
    for (let n = 1; n <= total; n *= 10) {
      picture.append(element("path", { class: "grid", d: `M${left} ${y(n)}H${width - right}` }));
      picture.append(element("text", { x: left - 6, y: y(n) + 4, class: "end" }, comma(n)));
    }
    for (let n = 1; n <= most; n *= 10) picture.append(element("text", { x: x(n), y: height - 8, class: "middle" }, comma(n)));
    let path = `M${x(1)} ${y(exceed(0))}`;
    per.values.forEach((v) => { path += `H${x(v)}V${y(exceed(v))}`; });
    picture.append(element("path", { class: "curve", d: path }));
    picture.append(element("path", { class: "axis", d: `M${left} ${height - bottom}H${width - right}` }));
    line = element("path", { class: "limit" });
    grip = element("circle", { class: "grip", cy: top + 8, r: 9 });
    picture.append(line, grip);
    const drag = (event) => {
      const at = picture.getBoundingClientRect();
      const part = ((event.clientX - at.left) / at.width * width - left) / (width - left - right);
      slider.value = Math.round(1000 * Math.min(1, Math.max(0, part)));
      move();
    };
    picture.addEventListener("pointerdown", (event) => { picture.setPointerCapture(event.pointerId); drag(event); });
    picture.addEventListener("pointermove", (event) => { if (picture.hasPointerCapture(event.pointerId)) drag(event); });
    box.replaceChildren(picture);
    move();
  };
  for (const input of document.querySelectorAll('input[name="per"]')) {
    input.addEventListener("change", () => draw(Number(input.value)));
    if (input.checked) draw(Number(input.value));
  }
  slider.addEventListener("input", move);
})();
