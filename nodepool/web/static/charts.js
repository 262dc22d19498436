// SPDX-License-Identifier: Apache-2.0
// Draws the charts of the first page, and again when there are new samples.
(() => {
  "use strict";
  const AGAIN_MS = 15000;
  const box = document.getElementById("charts");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const CURVES = ["--curve-1", "--curve-2", "--curve-3", "--curve-4", "--curve-5"];
  const drawn = [];
  const grid = () => ({ stroke: colour("--line"), width: 1 });
  const axis = () => ({ stroke: colour("--quiet"), grid: grid(), ticks: { show: false } });

  // A server that has just started has few samples: minutes are shown then, and not years.
  const SHORTEST = 600;

  const draw = (figure, chart, data) => {
    const series = chart.curves.map((curve, n) => ({ label: curve.label, stroke: colour(CURVES[n]), width: 2 }));
    const options = { width: figure.clientWidth - 16, height: 170, series: [{}, ...series], axes: [axis(), axis()] };
    return new uPlot({ ...options, scales: { y: { range: (u, low, high) => [0, Math.max(high, 1)] } } }, data, figure);
  };
  const show = async () => {
    const answer = await fetch(box.dataset.from).catch(() => null);
    if (!answer || !answer.ok) return;
    const found = await answer.json();
    found.charts.forEach((chart, n) => {
      const data = [found.times, ...chart.curves.map((curve) => curve.values)];
      if (drawn[n]) drawn[n].setData(data);
      else drawn[n] = draw(box.children[n], chart, data);
      const [first, last] = [found.times[0], found.times.at(-1)];
      if (last - first < SHORTEST) drawn[n].setScale("x", { min: last - SHORTEST, max: last });
    });
    box.hidden = false;
  };
  const fit = () => drawn.forEach((plot, n) => plot.setSize({ width: box.children[n].clientWidth - 16, height: 170 }));
  addEventListener("resize", fit);
  setInterval(() => document.hidden || show(), AGAIN_MS);
  show();
})();
