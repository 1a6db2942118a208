// ---------------------------------------------------------------- drawing

const results = {}, stale = new Set(SIDES);
let colours = null, waiting = false, bar = null;

function changed(key) {
  if (key) stale.add(key);
  if (!waiting) {
    waiting = true;
    requestAnimationFrame(draw);
  }
  remember();
}

function draw() {
  waiting = false;
  const began = performance.now(), moved = stale.size > 0;
  for (const key of stale) results[key] = computed(state[key]);
  stale.clear();
  const {a, b} = results, reach = 1.06 * RIGHT * state.size;
  if (moved) {
    results.d = null;
    results.limit = colourLimit([a.map, b.map]);
    results.scales = {
      m: limits([a, b], 0, reach, 2 * reach), beta: limits([a, b], 1, reach / 4, 2 * reach),
      effective: limits([a, b], 2, 1.25 * state.size, 2 * reach),
    };
  }
  if (state.difference && !results.d) {
    results.d = difference(a, b);
    results.scales.d = limits([results.d], 0, reach / 8, 2 * reach);
  }
  colours ??= colourMap();
  for (const row of root.querySelectorAll(".kx-differences")) row.hidden = !state.difference;
  const at = Math.log(state.at), over = state.over ?? state.size, spoken = [`w ${short(state.at)}`];
  const values = {};
  for (const key of SIDES) {
    const read = s => { const o = results[key].pull(at, s); return [o[0], o[1], o[0] / state.at]; };
    values[key] = {1: read(state.size), [-1]: read(-state.size), over: results[key].pull(at, over)[1]};
    spoken.push(`${NAMES[key]}: m ${short(values[key][1][0])} and ${short(values[key][-1][0])}`);
    describe(key);
  }
  common.at.slider.setAttribute("aria-valuetext", spoken.join("; "));
  for (const plot of panels) {
    if (!plot.width) continue;
    const {view, key} = plot, r = results[key];
    if (view === "map") {
      const data = key === "d" ? results.d : r;
      if (!data) continue;
      const beta = key === "d" ? values.b.over - values.a.over : values[key].over;
      const name = key !== "d" && r.band.own ? part(r.band, state.at, over) : "";
      plot.caption.replaceChildren(label(key), h("span", {}, `${key === "d" ? "Δβ" : "β"} = `, h("b", {}, short(beta)),
        where(` at w = ${short(state.at)},`), ` A = ${short(over)}`), h("b", {style: `color:var(--kx-${name})`}, name));
      drawMap(plot, data.map, key === "d" ? null : r.band, results.limit, colours);
    } else if (key === "d") {
      if (!results.d) continue;
      plot.scale = results.scales.d;
      plot.values = {1: values.b[1][0] - values.a[1][0], [-1]: values.b[-1][0] - values.a[-1][0]};
      caption(plot, "Δm");
      drawCurve(plot, results.d.curves, null, 0);
    } else {
      const index = Object.keys(VIEWS).indexOf(view);
      plot.scale = results.scales[view];
      plot.values = {1: values[key][1][index], [-1]: values[key][-1][index]};
      caption(plot, ["m", "β", "m/w"][index]);
      drawCurve(plot, r.curves, r.band, index);
    }
    const name = key === "d" ? "Difference B − A" : `Shape ${NAMES[key]}, ${spelling(state[key])}`;
    plot.svg.setAttribute("aria-label", `${name}: ${plot.title} against the ratio w. ${plot.caption.textContent}`);
  }
  drawArms();
  const [first, last] = [bar.firstChild, bar.lastChild];
  first.textContent = `β ${short(-results.limit)}`;
  last.textContent = short(results.limit);
  root.klip.milliseconds = performance.now() - began;
}

function describe(key) {
  const {band: edges, weight: [least, most]} = results[key], {spelled, extra} = cards[key];
  spelled.textContent = spelling(state[key]);
  const lines = [edges.own ? `band ${short(edges.low)} to ${short(edges.high)}` : "no band of its own: 0.8 to 1.2 is shaded"];
  if (spec(state[key]).weighs) lines.push(`plus the closed-form KL, weight ${least < most ? "up to " : ""}${short(most)}`);
  extra.textContent = lines.join("; ");
}

// ---------------------------------------------------------------- the address keeps the state

const MARK = "#explore?";
let timer = 0, address = location.hash;

function write() {
  const kept = new URLSearchParams();
  for (const key of SIDES) {
    const side = state[key], shape = DATA.shapes[side.shape];
    kept.set(key, shape.title);
    if (side.variant !== shape.own) for (const [name, value] of Object.entries(spec(side).choice)) kept.set(`${key}:${name}`, value);
    for (const {path, value} of spec(side).parameters) if (side.p[path] !== value) kept.set(`${key}.${path}`, side.p[path]);
    for (const name of spec(side).needs) if (name in side.c) kept.set(`${key}~${name}`, side.c[name] === null ? "auto" : side.c[name]);
  }
  if (state.size !== 1) kept.set("A", state.size);
  if (state.mass !== 0.2) kept.set("P", state.mass);
  if (state.difference) kept.set("difference", 1);
  return MARK + kept;
}

function remember() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const hash = write();
    if (hash === address || (!address.startsWith(MARK) && hash === untouched)) return;
    address = hash;
    try { history.replaceState(null, "", hash); } catch { /* a page without an address of its own */ }
  }, 250);
}

function recall() {
  address = location.hash;
  if (!address.startsWith(MARK)) return false;
  const kept = new URLSearchParams(address.slice(MARK.length));
  SIDES.forEach((key, i) => {
    const index = DATA.shapes.findIndex(shape => shape.title === kept.get(key));
    const side = fresh(index < 0 ? DATA.start[i] : index), shape = DATA.shapes[side.shape];
    const variant = shape.variants.findIndex(v => Object.entries(v.choice).every(([name, value]) =>
      (kept.get(`${key}:${name}`) ?? shape.variants[shape.own].choice[name]) === value));
    if (variant >= 0) Object.assign(side, fresh(side.shape, variant));
    for (const {path, above, at_least} of spec(side).parameters) {
      const text = kept.get(`${key}.${path}`), x = Number(text);
      if (text && Number.isFinite(x) && (above === null || x > above) && (at_least === null || x >= at_least)) side.p[path] = x;
    }
    for (const name of spec(side).needs) {
      const text = kept.get(`${key}~${name}`);
      if (text === "auto" && DATA.context[name].auto) side.c[name] = null;
      else if (text && Number.isFinite(Number(text))) side.c[name] = Number(text);
    }
    state[key] = side;
  });
  const size = Number(kept.get("A"));
  state.size = size > 0 && size <= TOP ? size : 1;
  const mass = Number(kept.get("P"));
  state.mass = mass > 0 && mass <= MOST ? mass : 0.2;
  state.difference = kept.get("difference") === "1";
  return true;
}
