"use strict";
// Draws the panels of the page: marks become traces, in the colours that the reader's page has.
const klip = (function () {
  const data = JSON.parse(document.getElementById("klip-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const matches = (query) => window.matchMedia(query).matches;
  const hidden = new Set();
  const drawn = new Map();
  const state = { raw: false, touched: false, printed: false };

  function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  function colour(mark) { return dark.matches && !state.printed ? mark.dark : mark.light; }
  function faded(hex, alpha) {
    const n = parseInt(hex.slice(1), 16);
    return `rgba(${n >> 16},${(n >> 8) & 255},${n & 255},${alpha})`;
  }
  function escaped(text) { return text.replace(/&/g, "&amp;").replace(/</g, "&lt;"); }
  function beside(about, i) {
    const text = Array.isArray(about) ? about[i] : about;
    return text ? ` (${escaped(text)})` : "";
  }

  function line(mark) {
    const shade = colour(mark), shape = mark.steps ? "hv" : "linear", traces = [];
    const common = { meta: [mark.label, escaped(mark.label)], visible: !hidden.has(mark.label), x: mark.x, mode: "lines", type: "scatter" };
    if (mark.low) {
      traces.push({ ...common, y: mark.high, line: { width: 0, shape }, hoverinfo: "skip" });
      traces.push({ ...common, y: mark.low, line: { width: 0, shape }, hoverinfo: "skip", fill: "tonexty", fillcolor: faded(shade, 0.15) });
    }
    if (mark.raw && state.raw) traces.push({ ...common, ...mark.raw, line: { color: faded(shade, 0.35), width: 1 }, hoverinfo: "skip" });
    traces.push({
      ...common, y: mark.y, text: mark.y.map((_, i) => beside(mark.about, i)),
      line: { color: mark.published ? faded(shade, 0.55) : shade, width: mark.published ? 1 : 2, dash: mark.dash, shape },
      hovertemplate: `%{y:.4~g}%{text}<extra>${mark.label ? "%{meta[1]}" : ""}</extra>`,
    });
    return traces;
  }
  function fan(mark) {
    const common = { x: mark.x, mode: "lines", type: "scatter", line: { width: 0 } };
    return [
      { ...common, y: mark.high, hoverinfo: "skip" },
      {
        ...common, y: mark.low, fill: "tonexty", fillcolor: faded(colour(mark), mark.alpha), text: mark.high.map((v) => (v === null ? "" : v.toPrecision(3))),
        hovertemplate: `%{y:.3~g} to %{text}<extra>${escaped(mark.label)}</extra>`,
      },
    ];
  }
  function dots(mark) {
    return [{
      x: mark.x, y: mark.y, mode: "markers", type: "scatter", marker: { color: faded(colour(mark), 0.4), size: 6 },
      hovertemplate: `%{y:.4~g}<extra>${escaped(mark.label)}</extra>`,
    }];
  }
  function whisker(mark) {
    const shade = colour(mark), known = mark.low !== null && mark.high !== null;
    const reach = {
      type: "data", symmetric: false, color: shade, thickness: 2.5, width: mark.upright ? 4 : 0,
      array: [known ? mark.high - mark.estimate : 0], arrayminus: [known ? mark.estimate - mark.low : 0],
    };
    const ends = known ? ` [${mark.low.toPrecision(4)}, ${mark.high.toPrecision(4)}]` : "";
    return [{
      x: [mark.upright ? mark.at : mark.estimate], y: [mark.upright ? mark.estimate : mark.at], mode: "markers", type: "scatter",
      marker: { color: shade, size: 9 }, [mark.upright ? "error_y" : "error_x"]: reach,
      text: [`${mark.estimate.toPrecision(4)}${ends}${beside(mark.about, 0)}`], hovertemplate: `%{text}<extra>${escaped(mark.label)}</extra>`,
    }];
  }
  const kinds = { line, fan, dots, whisker, level: () => [] };

  function levels(chart) {
    const shapes = [], annotations = [], quiet = css("--quiet");
    for (const mark of chart.marks.filter((m) => m.kind === "level")) {
      const up = mark.axis === "x", ends = up ? { yref: "paper", y0: 0, y1: 1, x0: mark.at, x1: mark.at } : { xref: "paper", x0: 0, x1: 1, y0: mark.at, y1: mark.at };
      shapes.push({ type: "line", layer: "below", ...ends, line: { color: colour(mark), width: 1, dash: "dot" } });
      const place = up ? { yref: "paper", y: 1, yanchor: "bottom", x: mark.at } : { xref: "paper", x: 1, xanchor: "right", y: mark.at, yanchor: "bottom" };
      if (mark.text) annotations.push({ ...place, text: escaped(mark.text), showarrow: false, font: { size: 11, color: quiet } });
    }
    return { shapes, annotations };
  }
  function axis(about, more) {
    const quiet = css("--quiet"), rule = css("--rule");
    const made = {
      gridcolor: rule, zerolinecolor: rule, linecolor: rule, tickfont: { color: quiet, size: 11 }, automargin: true,
      title: { text: escaped(about.label), font: { color: quiet, size: 12 } }, type: about.log ? "log" : "linear", ...more,
    };
    if (about.zero) made.rangemode = "tozero";
    if (about.at) {
      made.tickvals = about.at;
      made.ticktext = about.names.map(escaped);
    }
    if (about.down) {
      made.range = [Math.max(...about.at) + 0.6, Math.min(...about.at) - 0.6];
      Object.assign(made, { fixedrange: true, showgrid: false, zeroline: false, tickfont: { color: css("--ink"), size: 12 } });
    }
    return made;
  }
  function layout(chart) {
    const ink = css("--ink"), rule = css("--rule"), one = chart.marks.some((m) => m.kind === "whisker");
    const top = chart.marks.some((m) => m.kind === "level" && m.axis === "x" && m.text) ? 20 : 8;
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, margin: { l: chart.y.down ? 8 : 52, r: 10, t: top, b: 40 },
      font: { family: getComputedStyle(document.body).fontFamily, color: ink, size: 12 },
      hovermode: one ? "closest" : "x unified", hoverlabel: { bgcolor: css("--raised"), bordercolor: rule, font: { color: ink, size: 12 } },
      dragmode: matches("(max-width: 40rem)") ? false : "zoom",
      xaxis: axis(chart.x, { showgrid: false, zeroline: false }), yaxis: axis(chart.y, {}), ...levels(chart),
    };
  }
  function draw(element) {
    const chart = data.charts[element.dataset.chart];
    const name = chart.file.replace(/[^A-Za-z0-9.=-]+/g, "_");
    const config = {
      displaylogo: false, responsive: true, displayModeBar: matches("(hover: hover)") ? "hover" : false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      toImageButtonOptions: { filename: name, format: "svg" },
    };
    const size = { width: element.clientWidth, height: element.clientHeight };
    Plotly.react(element, chart.marks.flatMap((mark) => kinds[mark.kind](mark)), { ...layout(chart), ...size }, config);
    if (!drawn.has(element)) element.on("plotly_relayout", () => { state.touched = true; });
    drawn.set(element, chart);
  }
  function again() { for (const element of drawn.keys()) draw(element); }
  // A chart whose shapes are all hidden is no empty frame: it folds, and its legend stays.
  function fold() {
    for (const element of document.querySelectorAll("[data-chart]")) {
      const figure = element.closest("figure"), marks = data.charts[element.dataset.chart].marks.filter((m) => m.kind !== "level");
      const bare = marks.length > 0 && marks.every((m) => m.kind === "line" && hidden.has(m.label));
      const opened = figure?.classList.contains("bare") && !bare;
      figure?.classList.toggle("bare", bare);
      if (opened && drawn.has(element)) draw(element);
    }
  }

  // Charts are drawn when they come near: a page of fifty opens as fast as a page of one.
  const soon = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
    }
  }, { rootMargin: "800px" });
  dark.addEventListener("change", again);
  // Paper is light, and no table on it can be unfolded; a listing of all runs would fill most of it.
  function print(on) {
    state.printed = on;
    document.documentElement.classList.toggle("printed", on);
    for (const details of document.querySelectorAll("details:not(.listing):has(table)")) {
      if (on && !details.open) { details.dataset.folded = ""; details.open = true; }
      if (!on && "folded" in details.dataset) { delete details.dataset.folded; details.open = false; }
    }
    for (const element of document.querySelectorAll("[data-chart]")) if (on || drawn.has(element)) draw(element);
  }
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  return { data, hidden, drawn, state, again, fold, watch: () => { for (const element of document.querySelectorAll("[data-chart]")) soon.observe(element); } };
})();
