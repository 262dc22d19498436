// SPDX-License-Identifier: Apache-2.0
// Draws the pictures of the first page, and again when there is a new sample.
(() => {
  "use strict";
  const [AGAIN_MS, HEIGHT, LEAST_SECONDS] = [10000, 170, 600];
  const SECONDS = { "1h": 3600, "24h": 86400, "7d": 604800 };
  // Key, name and colour of each layer, from the ground.
  const state = (key, name = key) => [key, name, `--state-${key}`];
  const NODES = [state("in-use", "in use"), ...["building", "ready", "deleting", "hold"].map((key) => state(key))];
  const wait = (key, name) => [key, name, `--wait-${key}`];
  const WAITS = [
    wait("launch", "being launched"), wait("room", "room"), wait("slot", "a free slot"), wait("tenant", "limit of the tenant"),
    wait("turn", "their turn"), wait("maintenance", "paused or drained"), wait("away", "provider away"), wait("declined", "declined"),
  ];
  const [COUNTS, TIMES] = [[], [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400]];
  for (let ten = 1; ten < 1e9; ten *= 10) COUNTS.push(ten, 2 * ten, 5 * ten);
  const count = (value) => (value >= 10 ? Math.round(value) : Math.round(10 * value) / 10).toLocaleString("en").replaceAll(",", " ");
  const duration = (value) => value >= 7200 ? `${count(value / 3600)} h` : value >= 120 ? `${count(value / 60)} min` : `${+value.toPrecision(2)} s`;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const element = (name, text = "", ...children) => {
    const made = document.createElement(name);
    made.append(text, ...children);
    return made;
  };
  const link = (text, href) => Object.assign(element("a", text), { href });

  const box = document.getElementById("charts");
  const more = box.nextElementSibling.firstElementChild;
  const shown = new URLSearchParams(location.search);
  const plots = new Map();
  let [tag, offset] = ["", 0];
  // As if the browser were where the server is.
  const local = (at) => new Date((at + offset) * 1000);
  const iso = (at) => local(at).toISOString().slice(0, box.dataset.range === "1h" ? 19 : 16).replace("T", " ");
  const tzDate = (at) => ((one) => new Date(one.getUTCFullYear(), one.getUTCMonth(), one.getUTCDate(), one.getUTCHours(), one.getUTCMinutes(), one.getUTCSeconds()))(local(at));
  const tick = (at) => iso(at).slice(...(iso(at).includes(" 00:00") ? [5, 10] : [11, 16]));

  // A picture: layers are stacked, lines are not. Of both: name, colour, values.
  const pictures = (found) => {
    const of = (rows, layers) => layers.map(([key, name, hue]) => ({ name, hue, values: rows[key] }));
    const providers = found.providers.length === 2 ? found.providers.slice(1) : found.providers;
    const seen = of(found.waiting, WAITS).filter((layer) => layer.values.some((value) => value));
    const means = found.range !== "1h";
    const nodes = (one) => ({
      title: one.name || "All providers",
      href: one.name && `${box.dataset.root}providers/${encodeURIComponent(one.name)}`,
      layers: of(one, NODES),
      lines: [{ name: "limit", hue: "--state-limit", values: one.limit, dash: [6, 4] }, ...(means ? [{ name: "most at a time", values: one.most, width: 0 }] : [])],
    });
    return [
      nodes(providers[0]),
      { title: "Requests that wait, and for what", href: `${box.dataset.root}requests`, layers: seen.length ? seen : of(found.waiting, WAITS.slice(0, 1)), lines: means ? [{ name: "most at a time", values: found.waiting.most, width: 0 }] : [] },
      { title: "Wait until fulfilled", text: duration, layers: [], lines: [{ name: "half of the requests", hue: "--state-in-use", values: found.p50 }, { name: "95 %", hue: "--state-hold", values: found.p95 }] },
      { title: "Launches within 15 min", layers: of(found, [state("ready"), state("failed")]), lines: [] },
      ...providers.slice(1).map(nodes),
    ];
  };
  const stacked = (layers) => layers.map((_, n) => layers[0].values.map((value, at) => value === null ? null : layers.slice(0, n + 1).reduce((sum, layer) => sum + (layer.values[at] || 0), 0)));
  const axis = (more) => ({ stroke: () => colour("--quiet"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif", ...more });

  const draw = (picture, times) => {
    const { layers, lines, text = count } = picture;
    const sums = stacked(layers);
    const curves = [...layers].reverse().map((one) => ({ ...one, fill: () => colour(one.hue) })).concat(lines);
    const key = `${picture.title} ${curves.map((one) => one.name)}`;
    const data = [times, ...sums.reverse(), ...lines.map((one) => one.values)];
    const [limit, ...rest] = [...lines].sort((one, other) => Boolean(other.dash) - Boolean(one.dash));
    const most = Math.max(0, ...(layers.length ? data[1] : []), ...rest.flatMap((one) => one.values));
    const all = Math.max(most, ...(limit?.values ?? []));
    // A limit that is far above everything would leave nothing to see.
    const top = layers.length && all > 4 * most && most > 0 ? 1.5 * most : all;
    const begin = Math.max(times[0], times.at(-1) - SECONDS[box.dataset.range]);
    const window = { min: Math.min(begin, times.at(-1) - LEAST_SECONDS), max: times.at(-1) };
    let kept = plots.get(key);
    if (!kept) {
      const figure = box.appendChild(element("figure", "", element("figcaption", picture.href ? link(picture.title, picture.href) : picture.title)));
      const legend = element("ul");
      const series = curves.map((one) => ({ stroke: () => colour(one.hue), fill: one.fill, dash: one.dash, width: one.fill ? 1 : one.width ?? 2, spanGaps: !one.fill && !one.dash, points: { show: false } }));
      const axes = [axis({ values: (u, at) => at.map(tick), space: 60, size: 30 }), axis({ incrs: picture.text ? TIMES : COUNTS, values: (u, at) => at.map(text), size: 52, space: 28 })];
      const options = { width: figure.clientWidth - 18, height: HEIGHT, series: [{}, ...series], axes, tzDate, legend: { show: false }, cursor: { drag: { x: false, y: false }, y: false, points: { show: false } } };
      kept = { figure, legend, scales: { window, top } };
      options.scales = { x: { range: () => [kept.scales.window.min, kept.scales.window.max] }, y: { range: () => [0, Math.max(kept.scales.top * 1.05, picture.text ? 1 : 4)] } };
      options.hooks = { setCursor: [() => kept.tell()] };
      kept.plot = new uPlot(options, data, figure);
      figure.append(legend);
      Object.assign(figure, { tabIndex: 0, onkeydown: (event) => {
        const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key], at = kept.plot.cursor.idx ?? kept.plot.data[0].length - 1;
        if (!way) return;
        event.preventDefault();
        kept.plot.setCursor({ left: kept.plot.valToPos(kept.plot.data[0][Math.min(Math.max(at + way, 0), kept.plot.data[0].length - 1)], "x"), top: 0 });
      } });
      figure.setAttribute("role", "group");
      plots.set(key, kept);
    }
    kept.tell = () => {
      const at = kept.plot.cursor.idx ?? times.length - 1;
      const items = [...layers, ...lines].filter((one) => !one.dash || one.values[at] !== null).map((one) => {
        const [mark, value] = [element("i"), one.values[at]];
        mark.style.background = `var(${one.hue})`;
        return element("li", one.hue ? mark : "", `${one.name} `, element("b", value === null ? "-" : text(value)));
      });
      kept.legend.replaceChildren(...items, element("li", `at ${iso(times[at])}`));
      kept.figure.setAttribute("aria-label", `${picture.title}: ${kept.legend.innerText.replaceAll("\n", ", ")}`);
    };
    kept.scales = { window, top };
    kept.plot.setData(data);
    kept.tell();
    return key;
  };

  const show = async () => {
    const answer = await fetch(`${box.dataset.root}charts.json?range=${box.dataset.range}${shown.get("providers") === "all" ? "&providers=all" : ""}`).catch(() => null);
    if (!answer?.ok || answer.headers.get("etag") === tag) return;
    tag = answer.headers.get("etag");
    const found = await answer.json();
    offset = found.offset;
    box.querySelector("p").hidden = found.times.length > 0;
    if (!found.times.length) return;
    more.hidden = !found.more;
    more.replaceChildren("and ", link(`${found.more} more providers`, `${box.dataset.root}?range=${found.range}&providers=all`));
    const drawn = pictures(found).map((one) => draw(one, found.times));
    plots.forEach((one, key) => drawn.includes(key) || (one.plot.destroy(), one.figure.remove(), plots.delete(key)));
    drawn.forEach((key) => box.append(plots.get(key).figure));
  };
  const fit = () => plots.forEach((one) => one.plot.setSize({ width: one.figure.clientWidth - 18, height: HEIGHT }));
  addEventListener("resize", fit);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach((one) => one.plot.redraw()));
  setInterval(() => document.hidden || show(), AGAIN_MS);
  document.querySelector(".ranges").addEventListener("click", (event) => {
    const chosen = event.target.closest("a");
    if (!chosen || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    history.replaceState(null, "", chosen.href);
    document.querySelectorAll(".ranges a").forEach((one) => one === chosen ? one.setAttribute("aria-current", "true") : one.removeAttribute("aria-current"));
    [box.dataset.range, tag] = [new URL(chosen.href).searchParams.get("range"), ""];
    show();
  });
  show();
})();
