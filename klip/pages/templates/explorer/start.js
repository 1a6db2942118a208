// ---------------------------------------------------------------- start

const common = {};

function refresh() {
  SIDES.forEach(key => { buildCard(key); stale.add(key); });
  common.size.show(state.size);
  common.mass.show(state.mass);
  common.tick.checked = state.difference;
  changed();
}

function start() {
  SIDES.forEach((key, i) => { state[key] = fresh(DATA.start[i]); });
  common.size = control("kx-size", "|A|", state.size, {low: 0.05, high: TOP, step: 0.05, above: 0, words: "size of the advantage"},
    x => { state.size = x; SIDES.forEach(key => stale.add(key)); legend(); changed(); });
  common.at = control("kx-at", "read at w", state.at, {low: LEFT, high: RIGHT, step: 0.005, above: 0, words: "ratio to read the curves at"},
    x => { state.at = Math.min(x, RIGHT); state.over = null; changed(); });
  common.tick = h("input", {type: "checkbox", id: "kx-difference", onchange: () => {
    state.difference = common.tick.checked;
    changed();
  }});
  common.mass = control("kx-mass", "P of the good arm", state.mass, {low: 0.01, high: MOST, step: 0.01, above: 0, words: "old probability of the good arm"},
    x => { state.mass = Math.min(x, MOST); changed(); });
  root.querySelector(".kx-common").append(common.size.row, common.at.row, common.mass.row,
    h("label", {class: "kx-tick"}, common.tick, "difference B − A"));

  const plots = root.querySelector(".kx-plots");
  const row = (name, title, says, ...figures) => {
    figures.forEach((_, i) => { panels[panels.length - figures.length + i].title = title; });
    return h("div", {class: `kx-block kx-${name}`}, h("p", {class: "kx-head"}, title + " ", h("span", {}, says)),
      h("div", {class: "kx-row"}, ...figures));
  };
  for (const [view, [title, says]] of Object.entries(VIEWS)) {
    plots.append(row(`view-${view}`, title, says, ...SIDES.map(key => panel(view, key, view === "m" ? 210 : 180))));
  }
  bar = h("span", {}, h("span"), h("span", {}, "0"), h("span"));
  plots.append(
    row("view-map", "The map of β", "over ratio and advantage; no colour, no penalty", ...SIDES.map(key => panel("map", key, 230))),
    h("div", {class: "kx-bar", "aria-hidden": "true"}, h("i"), bar),
    h("div", {class: "kx-block kx-arms"}, h("p", {class: "kx-head"}, "Where the inner loop goes ",
      h("span", {}, "three arms, and two: the flow from the old policy (dot) to its end (square); where it is shaded, the return has fallen")),
    h("div", {class: "kx-row"}, ...SIDES.map(arms))),
    row("differences", "Difference B − A", "the same for m and for β: wA cancels", panel("d", "d", 210), panel("map", "d", 210)));

  root.klip = {DATA, CODE, state, results, ends, bandit, evaluate: (code, l, a, p, c) => { const o = [0, 0, 0]; CODE[code](l, a, p, c, o); return o; }};
  recall();
  legend();
  refresh();
  untouched = write();
  const watch = new ResizeObserver(() => {
    for (const plot of panels) {
      plot.width = Math.floor(plot.field.clientWidth);
      plot.svg.setAttribute("width", plot.width);
      plot.svg.setAttribute("height", plot.height);
    }
    changed();
  });
  watch.observe(root);
  for (const plot of panels) watch.observe(plot.field);
  for (const plot of simplexes) watch.observe(plot.field);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours = null; changed(); });
  addEventListener("hashchange", () => { if (location.hash !== address && recall()) refresh(); });
}

function legend() {
  const size = short(state.size), swatch = inner => {
    const icon = h("span");
    icon.innerHTML = `<svg style="display:inline" viewBox="0 0 27 12">${inner}</svg>`;
    return icon;
  };
  const item = (inner, text) => { const icon = swatch(inner); icon.append(text); return icon; };
  root.querySelector(".kx-key").replaceChildren(
    item('<path d="M0 6h27" stroke="var(--kx-positive)" stroke-width="2.4"/>', `A = +${size}`),
    item('<path d="M0 6h27" stroke="var(--kx-negative)" stroke-width="2.4"/>', `A = −${size}`),
    item('<path d="M0 6h27" stroke="var(--kx-neutral)" stroke-dasharray="5 4"/>', "unconstrained"),
    item('<rect width="27" height="12" fill="var(--kx-band)"/>', "band"));
}
