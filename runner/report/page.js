// Sorts and filters the table, draws the charts of the remaining rows, and shows two configs side by side.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const body = document.querySelector("#table tbody");
// The first rows are in the page; the elements of the others are created when they scroll into view.
const rows = [...body.rows].map((element, index) => ({
  index, element, texts: [...element.cells].map((cell) => cell.textContent), orders: [...element.cells].map((cell) => cell.dataset.order),
}));
for (const [state, links, cells] of data.more) {
  const texts = cells.map((cell) => (Array.isArray(cell) ? cell[0] : cell));
  rows.push({ index: rows.length, state, links, texts, orders: cells.map((cell) => String(Array.isArray(cell) ? cell[1] : cell)) });
}
const first = [...(body.rows[0]?.cells ?? [])];
const classes = first.map((cell) => cell.className), job = first.findIndex((cell) => cell.dataset.job !== undefined);
const more = document.getElementById("more");
const view = { root: document.querySelector("#jobs .scrolling"), rootMargin: "600px" };
const observer = new IntersectionObserver((seen) => { if (seen[0].isIntersecting) showMore(); }, view);
let shown = rows, inView = 0;

function elementOf(row) {
  if (row.element) return row.element;
  row.element = document.createElement("tr");
  row.element.className = row.state;
  row.texts.forEach((text, at) => {
    const cell = add(row.element, "td", { class: classes[at], "data-order": row.orders[at] });
    if (at !== job) cell.textContent = text;
    else row.links.forEach(([number, link], place) => {
      if (place) cell.append(", ");
      if (link) add(cell, "a", { href: link }, number); else cell.append(number);
    });
  });
  return row.element;
}

function showMore() {
  body.append(...shown.slice(inView, inView + data.at_once).map(elementOf));
  inView = Math.min(inView + data.at_once, shown.length);
  const left = shown.length - inView;
  more.textContent = left ? `${left} more ${data.noun} below` : "";
  observer.unobserve(more);
  if (left) observer.observe(more);  // its callback runs at once if this is still in view
}

// Redraws table and charts with the rows that pass the filter, in their order.
function showRows() {
  const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  shown = rows.filter((row) => { const text = row.texts.join(" ").toLowerCase(); return words.every((word) => text.includes(word)); });
  inView = 0;
  body.replaceChildren();
  showMore();
  document.getElementById("count").textContent = `${shown.length} of ${rows.length} ${data.noun}`;
  const left = new Set(shown.map((row) => row.index));
  for (const figure of document.querySelectorAll("#pictures figure")) figure.hidden = !left.has(Number(figure.dataset.row));
  drawCharts();
}

function compareOrders(x, y) {
  if (x === "" || y === "") return (x === "") - (y === "");  // unmeasured values come last
  const difference = Number(x) - Number(y);
  return Number.isNaN(difference) ? x.localeCompare(y, undefined, { numeric: true }) : difference;
}

function sortBy(header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const at = header.cellIndex;
  const missing = (row) => row.orders[at] === "";
  rows.sort((a, b) => {
    const order = compareOrders(a.orders[at], b.orders[at]);
    return descending && missing(a) === missing(b) ? -order : order;
  });
  showRows();
}

// Lines through several rows are always drawn; other lines for the remaining rows, up to chart.most rows.
function drawCharts() {
  const places = shown.map((row) => row.index);
  for (const chart of data.charts) {
    const marks = [...chart.lines, ...chart.bars];
    const drawn = new Set(marks.map((mark) => mark.row));
    const candidates = places.filter((index) => drawn.has(index));
    const kept = chart.most ? candidates.slice(0, chart.most) : candidates;
    const order = new Map(kept.map((index, place) => [index, place]));
    const left = marks
      .filter((mark) => mark.row === null || order.has(mark.row))
      .sort((a, b) => (order.get(a.row) ?? 0) - (order.get(b.row) ?? 0));
    const frame = document.getElementById(chart.name);
    const few = kept.length < candidates.length ? `The first ${kept.length} of ${candidates.length} jobs.` : "";
    frame.closest("figure").querySelector(".few").textContent = few;
    if (!left.length) frame.replaceChildren();
    else (chart.bars.length ? drawBars : drawLines)(frame, chart, left);
  }
}

function showDifference() {
  const chosen = ["first", "second"].map((side) => data.configs.own[document.getElementById(side).value]);
  const keys = [...new Set(chosen.flatMap(Object.keys))].sort();
  const differing = keys.filter((key) => chosen[0][key] !== chosen[1][key]);
  const table = document.querySelector("#keys tbody");
  table.replaceChildren();
  for (const cells of differing.map((key) => [key, ...chosen.map((config) => config[key] ?? "(absent)")])) {
    const line = table.insertRow();
    for (const text of cells) line.insertCell().textContent = text;
  }
  if (!differing.length) table.insertRow().insertCell().textContent = "no difference";
}

for (const header of document.querySelectorAll("#table th")) {
  header.querySelector("button").addEventListener("click", () => sortBy(header));
}
document.getElementById("filter").addEventListener("input", showRows);
if (document.getElementById("difference")) {
  ["first", "second"].forEach((side, at) => {
    const select = document.getElementById(side);
    data.labels.forEach((label, index) => add(select, "option", { value: index }, label));
    select.selectedIndex = at;
    select.addEventListener("change", showDifference);
  });
  showDifference();
}
showRows();
onNewWidth(drawCharts);
