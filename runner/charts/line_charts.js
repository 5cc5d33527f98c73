// Draws charts of lines, for pages that have no other script.
"use strict";

const { charts } = JSON.parse(document.getElementById("data").textContent);

function drawCharts() {
  for (const chart of charts) drawLines(document.getElementById(chart.name), chart, chart.lines);
}

drawCharts();
onNewWidth(drawCharts);
