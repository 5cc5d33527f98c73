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
  document.getElementById("count").textContent = `${shown} of ${rows.length} jobs`;
  drawCharts();
}

function drawCharts() {
  const shown = rows.filter((row) => !row.hidden).map((row) => row.index);
  for (const chart of data.charts) {
    const drawn = new Set(chart.figure.data.map((trace) => trace.meta));
    const candidates = shown.filter((index) => drawn.has(index));
    const kept = chart.most ? candidates.slice(0, chart.most) : candidates;
    const place = new Map(kept.map((index, order) => [index, order]));
    const traces = chart.figure.data
      .filter((trace) => trace.meta === undefined || place.has(trace.meta))
      .sort((a, b) => (place.get(a.meta) ?? 0) - (place.get(b.meta) ?? 0));
    const element = document.getElementById(chart.name);
    const few = kept.length < candidates.length ? `The first ${kept.length} of ${candidates.length} jobs.` : "";
    element.closest("figure").querySelector(".few").textContent = few;
    const bars = chart.name === "epoch_times";
    const legend = traces.filter((trace) => trace.showlegend !== false).length;
    const named = legend > 1 && legend <= 12;  // more names than that are read by pointing at a line
    const height = bars ? 80 + 26 * Math.max(traces.length, 3) : 360 + (named ? 22 * Math.ceil(legend / 2) : 0);
    const layout = { ...chart.figure.layout, height, showlegend: named && !bars };
    if (bars) fitBars(layout, traces, element.clientWidth);
    Plotly.react(element, traces, layout, { responsive: true, displaylogo: false, displayModeBar: false });
  }
}

// Where there is little width, long labels are cut and the values get room beside the bars.
function fitBars(layout, traces, width) {
  const names = traces.map((trace) => trace.y[0]);
  layout.yaxis = { ...layout.yaxis, categoryarray: names };
  if (width > 500) return;
  const shorten = (name) => (name.length > 16 ? `${name.slice(0, 15)}…` : name);
  layout.yaxis = { ...layout.yaxis, tickvals: names, ticktext: names.map(shorten) };
  layout.xaxis = { ...layout.xaxis, range: [0, 1.3 * Math.max(...traces.map((trace) => trace.x[0]))] };
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
