// Draws a chart of the page: lines as SVG, bars as rows of HTML. The line or bar nearest to the pointer is named, the others fade.
"use strict";

const DASHES = { solid: "", dash: "7 4", dot: "2 3", dashdot: "8 3 2 3" };
const holder = document.createElement("div");
holder.innerHTML = "<svg></svg>";
const SVG = holder.firstChild.namespaceURI;
const MOST_MARKS = 60;  // of a line: with more points, none is marked

function add(parent, name, attributes = {}, text = null) {
  const isSvg = parent.namespaceURI === SVG || name === "svg";
  const element = isSvg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}

const groupOf = (line) => (line.row === null ? line.name : line.row);

function drawLines(frame, chart, lines) {
  frame.replaceChildren();
  const width = Math.max(frame.clientWidth, 240), height = width < 500 ? 280 : 340;
  const xs = lines.flatMap((line) => line.x);
  const ys = lines.flatMap((line) => line.y.flatMap((y, index) => {
    const spread = line.spread[index] || 0;
    return y === null ? [] : [y - spread, y + spread];
  }));
  const box = { top: 26, bottom: height - 42, right: width - 16 };
  const y = scaleOf(chart.y, ys, box.bottom, box.top, 6);
  box.left = 14 + 7.2 * Math.max(...y.ticks.map((tick) => tick.label.length));
  const x = scaleOf(chart.x, xs, box.left, box.right, Math.max(3, Math.floor(width / 90)));
  const picture = add(frame, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chart.title });
  drawAxes(picture, chart, x, y, box);
  const spots = drawCurves(picture, lines, x, y, box);
  const tip = add(frame, "div", { class: "tip" });
  const names = drawLegend(frame, lines);
  const light = (group) => {
    frame.classList.toggle("lit", group !== null);
    for (const each of frame.querySelectorAll("[data-group]")) {
      each.classList.toggle("on", each.dataset.group === String(group));
    }
  };
  follow(picture, tip, spots, chart, light);
  for (const name of names) {
    const group = name.dataset.group;
    for (const on of ["pointerenter", "focus"]) name.addEventListener(on, () => light(group));
    for (const off of ["pointerleave", "blur"]) name.addEventListener(off, () => light(null));
  }
}

function drawAxes(picture, chart, x, y, box) {
  for (const { value, label } of y.ticks) {
    const at = y.at(value);
    add(picture, "line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at });
    add(picture, "text", { class: "tick", x: box.left - 6, y: at + 4, "text-anchor": "end" }, label);
  }
  let free = -Infinity;  // labels that would overlap are omitted
  for (const { value, label } of x.ticks) {
    const at = x.at(value), half = 3.6 * label.length;
    add(picture, "line", { class: "mark", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4 });
    if (at - half < free || at + half > box.right + 16) continue;
    add(picture, "text", { class: "tick", x: at, y: box.bottom + 17, "text-anchor": "middle" }, label);
    free = at + half + 6;
  }
  add(picture, "line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom });
  const middle = (box.left + box.right) / 2;
  add(picture, "text", { class: "title", x: middle, y: box.bottom + 37, "text-anchor": "middle" }, chart.x.title);
  add(picture, "text", { class: "title", x: 0, y: 12 }, chart.y.title);
}

// Returns where the points are: [{x, y, line, index}].
function drawCurves(picture, lines, x, y, box) {
  const inside = add(picture, "svg", { x: 0, y: box.top - 5, width: box.right + 8, height: box.bottom - box.top + 10 });
  inside.setAttribute("viewBox", `0 ${box.top - 5} ${box.right + 8} ${box.bottom - box.top + 10}`);  // clips what is outside
  const spots = [], clipped = (value) => Math.min(Math.max(value, box.top), box.bottom);
  const wide = lines.filter((line) => line.spread.length).length;
  lines.forEach((line, order) => {
    const group = add(inside, "g", { class: "series", "data-group": groupOf(line), style: `--c: ${line.colour}` });
    const aside = wide > 1 ? (order - (lines.length - 1) / 2) * Math.min(5, 30 / lines.length) : 0;  // error bars side by side
    let path = "", isOpen = false;
    line.y.forEach((value, index) => {
      if (!x.holds(line.x[index]) || !y.holds(value)) { isOpen = false; return; }
      const place = { x: x.at(line.x[index]) + aside, y: y.at(value), line, index };
      path += `${isOpen ? "L" : "M"}${place.x.toFixed(1)} ${place.y.toFixed(1)}`;
      isOpen = true;
      if (place.y >= box.top - 5) spots.push(place);
      const spread = line.spread[index];
      if (spread) {
        const [low, high] = [value - spread, value + spread].map((end) => (y.holds(end) ? clipped(y.at(end)) : box.bottom));
        const [left, right] = [place.x - 4, place.x + 4];
        add(group, "path", { class: "whisker", d: `M${place.x} ${low}V${high}M${left} ${low}H${right}M${left} ${high}H${right}` });
      }
      if (line.mark === "points" || (line.mark === "both" && line.y.length <= MOST_MARKS)) {
        add(group, "circle", { cx: place.x, cy: place.y, r: line.mark === "points" ? 3.2 : 3 });
      }
    });
    if (line.mark !== "points") add(group, "path", { class: "curve", d: path, "stroke-dasharray": DASHES[line.dash] });
  });
  return spots;
}

// The names below a chart; none for a single line.
function drawLegend(frame, lines) {
  const named = new Map();
  for (const line of lines) if (line.name && !named.has(groupOf(line))) named.set(groupOf(line), line);
  if (named.size < 2) return [];
  const legend = add(frame, "div", { class: "legend" });
  return [...named].map(([group, line]) => {
    const name = add(legend, "button", { type: "button", "data-group": group, style: `--c: ${line.colour}` });
    const sample = add(name, "svg", { width: 26, height: 10, "aria-hidden": "true" });
    if (line.mark === "points") add(sample, "circle", { class: "dot", cx: 13, cy: 5, r: 3.5 });
    else add(sample, "line", { class: "curve", x1: 1, x2: 25, y1: 5, y2: 5, "stroke-dasharray": DASHES[line.dash] });
    add(name, "span", {}, line.name);
    return name;
  });
}

function follow(picture, tip, spots, chart, light) {
  const leave = () => { tip.classList.remove("on"); light(null); };
  picture.addEventListener("pointerleave", leave);
  for (const event of ["pointermove", "pointerdown"]) picture.addEventListener(event, ({ offsetX, offsetY }) => {
    let nearest = null, least = 40 ** 2;
    for (const spot of spots) {
      const distance = (spot.x - offsetX) ** 2 + (spot.y - offsetY) ** 2;
      if (distance < least) [nearest, least] = [spot, distance];
    }
    if (!nearest) return leave();
    const { line, index } = nearest, spread = line.spread[index];
    const place = chart.x.labels[chart.x.ticks.indexOf(line.x[index])] ?? plain(line.x[index], 4);
    const value = plain(line.y[index], 4) + (spread ? ` ± ${plain(spread, 2)}` : "");
    tip.replaceChildren();
    if (line.name) add(tip, "b", {}, line.name);
    add(tip, "span", {}, `${chart.y.title}: ${value}`);
    add(tip, "span", {}, `${chart.x.title}: ${place}`);
    tip.classList.add("on");
    const right = nearest.x > picture.clientWidth / 2;
    tip.style.left = right ? "" : `${nearest.x + 12}px`;
    tip.style.right = right ? `${picture.clientWidth - nearest.x + 12}px` : "";
    tip.style.top = `${Math.max(nearest.y - 30, 0)}px`;
    return light(groupOf(line));
  });
}

function drawBars(frame, chart, bars) {
  frame.replaceChildren();
  const most = Math.max(...bars.map((bar) => bar.high)), share = (value) => `${(100 * value) / most}%`;
  const table = add(frame, "div", { class: "bars" });
  const remarks = bars.some((bar) => bar.remark);
  for (const title of ["", chart.x.title, "", remarks ? "speed-up" : ""]) add(table, "span", { class: "title" }, title);
  bars.forEach((bar, index) => {
    const apart = index && bars[index - 1].group !== bar.group ? " apart" : "";
    add(table, "span", { class: `name${apart}` }, bar.name);
    const track = add(table, "span", { class: `track${apart}` });
    const style = `width: ${share(bar.value)}; --c: ${bar.colour}`;
    add(track, "i", { class: bar.is_complete ? "fill" : "fill pale", style });
    if (bar.high > bar.low) add(track, "i", { class: "range", style: `left: ${share(bar.low)}; width: ${share(bar.high - bar.low)}` });
    add(table, "span", { class: `value${apart}` }, bar.text);
    add(table, "span", { class: `value${apart}` }, bar.remark);
  });
}

function onNewWidth(draw) {
  let width = document.body.clientWidth;
  addEventListener("resize", () => {
    if (width !== document.body.clientWidth) draw();
    width = document.body.clientWidth;
  });
}
