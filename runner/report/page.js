// Sorts and filters the table, draws the charts of the rows that are left, and sets two configs side by side.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const body = document.querySelector("#table tbody");
const rows = [...body.rows];
rows.forEach((row, index) => { row.index = index; });

function compareCells(a, b) {
  const x = a.dataset.order, y = b.dataset.order;
  if (x === "" || y === "") return (x === "") - (y === "");  // what was not measured comes last
  const difference = Number(x) - Number(y);
  return Number.isNaN(difference) ? x.localeCompare(y, undefined, { numeric: true }) : difference;
}

function sortBy(header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const at = header.cellIndex;
  const missing = (row) => row.cells[at].dataset.order === "";
  rows.sort((a, b) => {
    const order = compareCells(a.cells[at], b.cells[at]);
    return descending && missing(a) === missing(b) ? -order : order;
  });
  body.append(...rows);
  drawCharts();
}

function filterRows() {
  const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) {
    const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  const shown = rows.filter((row) => !row.hidden).length;
  document.getElementById("count").textContent = `${shown} of ${rows.length} ${data.noun}`;
  drawCharts();
}

// Lines through several rows are always drawn; of the others, those of the rows that are left, up to chart.most rows.
function drawCharts() {
  const shown = rows.filter((row) => !row.hidden).map((row) => row.index);
  for (const chart of data.charts) {
    const marks = [...chart.lines, ...chart.bars];
    const drawn = new Set(marks.map((mark) => mark.row));
    const candidates = shown.filter((index) => drawn.has(index));
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
document.getElementById("filter").addEventListener("input", filterRows);
if (document.getElementById("difference")) {
  for (const side of ["first", "second"]) document.getElementById(side).addEventListener("change", showDifference);
  showDifference();
}
filterRows();
let width = document.body.clientWidth;
addEventListener("resize", () => {
  if (width !== document.body.clientWidth) drawCharts();
  width = document.body.clientWidth;
});
