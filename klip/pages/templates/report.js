"use strict";
(function () {
  const data = JSON.parse(document.getElementById("klip-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const matches = (query) => window.matchMedia(query).matches;
  const hidden = new Set();
  const drawn = new Map();
  let touched = false;

  for (const button of document.querySelectorAll(".legend button[aria-pressed=false]")) {
    hidden.add(button.dataset.label);
  }
  try {
    const kept = JSON.parse(sessionStorage.getItem("klip-hidden"));
    if (data.refresh && Array.isArray(kept)) { hidden.clear(); kept.forEach((label) => hidden.add(label)); }
  } catch (_) { /* storage may be forbidden: then nothing is remembered */ }

  function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  function colour(slot) {
    if (slot === "kill" || slot === "pass") return css("--" + slot);
    const palette = dark.matches ? data.dark : data.light;
    return palette[slot % palette.length];
  }
  function faded(hex, alpha) {
    const n = parseInt(hex.slice(1), 16);
    return `rgba(${n >> 16},${(n >> 8) & 255},${n & 255},${alpha})`;
  }
  function escaped(text) { return text.replace(/&/g, "&amp;").replace(/</g, "&lt;"); }
  function seeds(n) { return n === undefined ? "" : typeof n === "string" ? ` (${n})` : n === 1 ? " (1 seed)" : ` (${n} seeds)`; }

  function lines(chart) {
    const traces = [];
    for (const s of chart.series) {
      const shade = colour(s.slot), visible = !hidden.has(s.label), shape = chart.steps ? "hv" : "linear";
      const common = { meta: [s.label, escaped(s.label)], visible, x: s.x, mode: "lines", type: "scatter" };
      if (s.low && s.low.length) {
        traces.push({ ...common, y: s.high, line: { width: 0, shape }, hoverinfo: "skip" });
        traces.push({ ...common, y: s.low, line: { width: 0, shape }, hoverinfo: "skip", fill: "tonexty", fillcolor: faded(shade, 0.15) });
      }
      const text = s.published ? undefined : s.y.map((_, i) => seeds(Array.isArray(s.n) ? s.n[i] : s.n));
      traces.push({
        ...common, y: s.y, text,
        line: { color: s.published ? faded(shade, 0.55) : shade, width: s.published ? 1 : 2, dash: s.dash, shape },
        hovertemplate: s.published ? "%{y:.4~g} <i>published</i><extra>%{meta[1]}</extra>" : "%{y:.4~g}%{text}<extra>%{meta[1]}</extra>",
      });
    }
    return traces;
  }
  function fan(chart) {
    const shade = colour(0), traces = [];
    for (const f of chart.fans) {
      const common = { x: chart.x, mode: "lines", type: "scatter", line: { width: 0 } };
      traces.push({ ...common, y: f.high, hoverinfo: "skip" });
      traces.push({
        ...common, y: f.low, fill: "tonexty", fillcolor: faded(shade, 0.2), name: f.label,
        text: f.high.map((v) => (v === null ? "" : v.toPrecision(3))), hovertemplate: "%{y:.3~g} to %{text}<extra>" + f.label + "</extra>",
      });
    }
    traces.push({ x: chart.x, y: chart.median, mode: "lines", type: "scatter", line: { color: css("--ink"), width: 1.5 }, hovertemplate: "%{y:.3~g}<extra>median</extra>" });
    return traces;
  }
  function sweep(chart) {
    const shade = colour(0), p = chart.points;
    return [
      {
        x: p.flatMap((q) => q.seeds.map(() => q.x)), y: p.flatMap((q) => q.seeds), mode: "markers", type: "scatter",
        marker: { color: faded(shade, 0.4), size: 6 }, hovertemplate: "%{y:.4~g}<extra>a seed</extra>",
      },
      {
        x: p.map((q) => q.x), y: p.map((q) => q.y), mode: "lines+markers", type: "scatter", line: { color: shade, width: 2 }, marker: { size: 8 },
        error_y: {
          type: "data", symmetric: false, color: shade, thickness: 1.5, width: 4,
          array: p.map((q) => (q.high === null ? 0 : q.high - q.y)), arrayminus: p.map((q) => (q.low === null ? 0 : q.y - q.low)),
        },
        text: p.map((q) => seeds(q.n)), hovertemplate: "%{y:.4~g}%{text}<extra>mean</extra>",
      },
    ];
  }
  function layout(chart) {
    const ink = css("--ink"), quiet = css("--quiet"), rule = css("--rule");
    const axis = { gridcolor: rule, zerolinecolor: rule, linecolor: rule, tickfont: { color: quiet, size: 11 }, automargin: true };
    const made = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, margin: { l: 52, r: 8, t: 8, b: 40 },
      font: { family: getComputedStyle(document.body).fontFamily, color: ink, size: 12 },
      hovermode: chart.kind === "sweep" ? "closest" : "x unified", hoverlabel: { bgcolor: css("--raised"), bordercolor: rule, font: { color: ink, size: 12 } },
      dragmode: matches("(max-width: 40rem)") ? false : "zoom",
      xaxis: { ...axis, title: { text: chart.kind === "sweep" ? chart.x : chart.along || "environment steps", font: { color: quiet, size: 12 } }, showgrid: false },
      yaxis: { ...axis, title: { text: chart.y, font: { color: quiet, size: 12 } } },
    };
    if (chart.zero) made.yaxis.rangemode = "tozero";
    if (chart.kind === "sweep") {
      made.xaxis.type = chart.log ? "log" : "linear";
      made.xaxis.tickvals = [...new Set(chart.points.map((q) => q.x))];
      made.xaxis.ticktext = made.xaxis.tickvals.map(String);
    }
    if (chart.level) {
      made.shapes = [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: chart.level.y, y1: chart.level.y, line: { color: colour("kill"), width: 1, dash: "dot" } }];
      made.annotations = [{ xref: "paper", x: 1, xanchor: "right", y: chart.level.y, yanchor: "bottom", text: chart.level.text, showarrow: false, font: { size: 11, color: quiet } }];
    }
    return made;
  }
  const kinds = { lines, fan, sweep };
  function draw(element) {
    const chart = data.charts[element.dataset.chart];
    const name = chart.file.replace(/[^A-Za-z0-9.=-]+/g, "_");
    const config = {
      displaylogo: false, responsive: true, displayModeBar: matches("(hover: hover)") ? "hover" : false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      toImageButtonOptions: { filename: name, format: "svg" },
    };
    Plotly.react(element, kinds[chart.kind](chart), layout(chart), config);
    if (!drawn.has(element)) element.on("plotly_relayout", () => { touched = true; });
    drawn.set(element, chart);
  }

  // Charts are drawn when they come near: a page of fifty opens as fast as a page of one.
  const soon = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
    }
  }, { rootMargin: "800px" });
  for (const element of document.querySelectorAll("[data-chart]")) soon.observe(element);

  function paint() {
    for (const mark of document.querySelectorAll(".swatch[data-slot]")) mark.style.background = colour(Number(mark.dataset.slot));
    for (const button of document.querySelectorAll(".legend button")) {
      button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.label)));
    }
  }
  paint();
  dark.addEventListener("change", () => { paint(); for (const element of drawn.keys()) draw(element); });
  addEventListener("beforeprint", () => { for (const element of document.querySelectorAll("[data-chart]")) draw(element); });

  document.addEventListener("click", (event) => {
    const button = event.target.closest(".legend button");
    if (!button) return;
    const label = button.dataset.label;
    if (!hidden.delete(label)) hidden.add(label);
    paint();
    try { sessionStorage.setItem("klip-hidden", JSON.stringify([...hidden])); } catch (_) { /* as above */ }
    for (const [element, chart] of drawn) {
      if (chart.kind !== "lines") continue;
      const places = element.data.map((t, i) => (t.meta[0] === label ? i : -1)).filter((i) => i >= 0);
      if (places.length) Plotly.restyle(element, { visible: !hidden.has(label) }, places);
    }
  });

  const links = new Map([...document.querySelectorAll("nav a[href^='#']")].map((a) => [a.getAttribute("href").slice(1), a]));
  const here = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.classList.remove("here");
      links.get(entry.target.id)?.classList.add("here");
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  for (const section of document.querySelectorAll("section[id]")) here.observe(section);

  if (data.refresh) {
    const told = document.getElementById("live");
    setInterval(() => {
      if (document.hidden) return;
      if (touched) told.textContent = "Not refreshed since you zoomed in: load the page again to see what is new.";
      else location.reload();
    }, data.refresh * 1000);
  }
})();
