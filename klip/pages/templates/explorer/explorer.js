(() => {
"use strict";
// Each function sets o: [m, beta, weight of the closed-form KL] or [lower edge, upper edge].
// l is log w, a the advantage, p the parameters, c the context, both in the order of their lists.
const CODE = [
@CODE@
];
const DATA = @DATA@;

const root = document.querySelector(".klip-explorer");
if (!root || !DATA.shapes.length) return;

const SMALLEST = 0.005, SAMPLES = 401, VISIBLE = 1e-3, COLUMNS = 240, LINES = 160;
const [LEFT, RIGHT] = [Math.max(DATA.ratios[0], SMALLEST), DATA.ratios[1]];
const [BOTTOM, TOP] = DATA.advantages;
const AUTO = {kl: l => l * l / 2, reference_log_ratio: l => l, reward: (l, a) => a};
const SIDES = ["a", "b"], NAMES = {a: "A", b: "B"};
const VIEWS = {
  m: ["Multiplier m", "how hard a sample pulls on its own log-probability"],
  beta: ["Coefficient β = m − wA", "what the trust region adds to the pull"],
  effective: ["Effective advantage m / w", "the advantage that an unconstrained step would need"],
};

// ---------------------------------------------------------------- state

const state = {size: 1, at: 1.25, difference: false, a: null, b: null};

function fresh(shape, variant = DATA.shapes[shape].own) {
  const side = {shape, variant, p: {}, c: {}};
  for (const {path, value} of spec(side).parameters) side.p[path] = value;
  return side;
}

function spec(side) { return DATA.shapes[side.shape].variants[side.variant]; }

function fact(side, name) {  // null: it follows w or A
  if (name in side.c) return side.c[name];
  return DATA.context[name].auto ? null : DATA.context[name].value;
}

/** (log w, A) => out, for one side as its controls stand. */
function evaluator(side) {
  const {parameters, needs, code} = spec(side), f = CODE[code], c = new Float64Array(needs.length);
  const p = parameters.map(({path}) => side.p[path]), out = [0, 0, 0], moving = [];
  needs.forEach((name, i) => {
    const value = fact(side, name);
    if (value === null) moving.push([i, AUTO[name]]);
    else c[i] = name === "old_log_prob" ? Math.log(value) : value;
  });
  return (l, a) => {
    for (const [i, follow] of moving) c[i] = follow(l, a);
    f(l, a, p, c, out);
    return out;
  };
}

function band(side) {
  const {parameters, needs, edges} = spec(side);
  if (edges === null) return {low: 0.8, high: 1.2, own: false};
  const c = needs.map(name => {
    const value = fact(side, name);
    return value === null ? AUTO[name](0, 1) : name === "old_log_prob" ? Math.log(value) : value;
  });
  const out = [0, 0];
  CODE[edges](0, 1, parameters.map(({path}) => side.p[path]), c, out);
  return {low: out[0], high: out[1], own: true};
}

function part({low, high}, w, a) {
  if (a === 0 || (w >= low && w <= high)) return "in";
  return (w > high) === (a > 0) ? "kill" : "pass";
}

// ---------------------------------------------------------------- curves

/** f over the ratios as {x, rows}, each jump found by bisection and cut; f(w) gives an array. */
function trace(f) {
  const x = [], rows = [];
  for (let i = 0; i < SAMPLES; i++) {
    x.push(LEFT + (RIGHT - LEFT) * i / (SAMPLES - 1));
    rows.push(f(x[i]));
  }
  const [low, high] = extent(rows.map(row => row[0])), height = high - low || 1;
  const xs = [x[0]], ys = [rows[0]], jumps = [];
  for (let i = 1; i < SAMPLES; i++) {
    let [l, r, yl, yr] = [x[i - 1], x[i], rows[i - 1], rows[i]];
    for (let n = 0; n < 60 && Math.abs(yr[0] - yl[0]) > VISIBLE * height; n++) {
      const middle = l + 0.47 * (r - l), y = f(middle);  // not in halves: see sgn at 0
      if (Math.abs(y[0] - yl[0]) >= Math.abs(yr[0] - y[0])) [r, yr] = [middle, y];
      else [l, yl] = [middle, y];
    }
    if (Math.abs(yr[0] - yl[0]) > VISIBLE * height) {
      const at = (l + r) / 2;
      jumps.push({at, left: yl, right: yr});
      xs.push(at, at, at);
      ys.push(yl, yl.map(() => NaN), yr);
    }
    xs.push(x[i]);
    ys.push(rows[i]);
  }
  return {x: xs, rows: ys, jumps};
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) {
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low <= high ? [low, high] : [0, 0];
}

/** One side's curves for either sign, its map of beta, and the largest weight on the KL. */
function computed(side) {
  const pull = evaluator(side), curves = {};
  for (const sign of [1, -1]) {
    const a = sign * state.size;
    curves[sign] = trace(w => { const o = pull(Math.log(w), a); return [o[0], o[1], o[0] / w]; });
  }
  const map = new Float64Array(COLUMNS * LINES);
  for (let j = 0; j < COLUMNS; j++) {
    const l = Math.log(DATA.ratios[0] + (RIGHT - DATA.ratios[0]) * (j + 0.5) / COLUMNS);
    for (let i = 0; i < LINES; i++) {
      map[i * COLUMNS + j] = pull(l, TOP - (TOP - BOTTOM) * (i + 0.5) / LINES)[1];
    }
  }
  let least = Infinity, most = -Infinity;
  for (const a of [1, -1]) {
    for (let w = LEFT; w <= RIGHT; w += (RIGHT - LEFT) / 64) {
      const weight = pull(Math.log(w), a)[2];
      least = Math.min(least, weight);
      most = Math.max(most, weight);
    }
  }
  return {pull, curves, map, band: band(side), weight: [least, most]};
}

function difference(a, b) {
  const curves = {};
  for (const sign of [1, -1]) {
    const size = sign * state.size;
    curves[sign] = trace(w => [b.pull(Math.log(w), size)[0] - a.pull(Math.log(w), size)[0]]);
  }
  return {curves, map: b.map.map((v, i) => v - a.map[i])};
}

/** A row's common scale: what its curves need, within limits, so that none flattens the others. */
function limits(columns, index, least, most) {
  const all = columns.flatMap(c => [1, -1].flatMap(s => c.curves[s].rows.map(row => row[index])));
  const [low, high] = extent(all.filter(Number.isFinite)), margin = 0.05 * (high - low);
  return [Math.max(Math.min(low - margin, -least), -most), Math.min(Math.max(high + margin, least), most)];
}

/** Where the colours end: at the largest |beta|, unless that is far beyond what is typical. */
function colourLimit(maps) {
  const pull = RIGHT * Math.max(Math.abs(BOTTOM), TOP), reach = [], most = [];
  for (const map of maps) {
    const some = [];
    for (let i = 0; i < map.length; i += 7) if (Number.isFinite(map[i])) some.push(Math.abs(map[i]));
    const sorted = Float64Array.from(some).sort();
    reach.push(sorted[Math.floor(0.98 * (sorted.length - 1))] || 0);
    most.push(sorted[sorted.length - 1] || 0);
  }
  reach.sort((x, y) => x - y);
  const typical = Math.min(reach[reach.length - 1], Math.max(pull, reach[(reach.length - 1) >> 1]));
  const largest = Math.max(...most);
  return (largest <= 1.5 * typical ? largest : typical) || 1;
}

// ---------------------------------------------------------------- elements

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const number = x => String(Number(x.toPrecision(12)));
const short = x => {
  if (!Number.isFinite(x)) return "undefined";
  if (Math.abs(x) < 1e-12) return "0";
  const text = Math.abs(x) >= 1e4 || (x && Math.abs(x) < 5e-4) ? x.toExponential(2) : x.toFixed(3);
  return text.replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "").replace("-", "−");
};

/** A slider and a number box that are one value; `set` gets every valid one. */
function control(id, label, value, {low, high, step, above = null, at_least = null, words}, set) {
  const slider = h("input", {type: "range", min: low, max: high, step, id: `${id}-slider`,
    "aria-label": `${words || label}, slider`, value});
  const box = h("input", {type: "number", id, step: "any", value: number(value)});
  const show = x => { slider.value = x; box.value = number(x); box.removeAttribute("aria-invalid"); };
  slider.addEventListener("input", () => {
    const x = Number(Number(slider.value).toPrecision(12));
    box.value = number(x);
    box.removeAttribute("aria-invalid");
    set(x);
  });
  box.addEventListener("input", () => {
    const x = box.valueAsNumber;
    const fine = Number.isFinite(x) && (above === null || x > above) && (at_least === null || x >= at_least);
    if (!fine) {
      box.setAttribute("aria-invalid", "true");
      box.title = above !== null ? `greater than ${above}` : at_least !== null ? `at least ${at_least}` : "a number";
      return;
    }
    box.removeAttribute("aria-invalid");
    box.title = "";
    slider.value = x;
    set(x);
  });
  slider.value = value;
  const name = label.split(/(?<=[._])/).flatMap(bit => [bit, h("wbr")]);
  const row = h("div", {class: "kx-control"}, h("label", {for: id}, ...name), slider, box);
  return {row, show, slider, box};
}

const cards = {};

/** The controls of one side, anew: after another shape was picked, or all was reset. */
function buildCard(key) {
  const side = state[key], shape = DATA.shapes[side.shape], variant = spec(side), id = `kx-${key}`;
  const card = root.querySelector(`.kx-card[data-side="${key}"]`);
  let select = card.querySelector(".kx-pick select");
  if (!select) {
    select = h("select", {id: `${id}-shape`, "aria-label": `Shape ${NAMES[key]}`,
      onchange: () => pick(key, Number(select.value))});
    const groups = new Map();
    DATA.shapes.forEach((each, i) => {
      if (!groups.has(each.family)) groups.set(each.family, h("optgroup", {label: each.family}));
      const text = each.number ? `${each.title}  (${each.number})` : each.title;
      groups.get(each.family).append(h("option", {value: i}, text));
    });
    select.append(...groups.values());
    card.append(h("div", {class: "kx-pick"}, select), h("div", {class: "kx-body"}), h("div", {class: "kx-foot"}));
  }
  select.value = side.shape;
  const body = card.querySelector(".kx-body"), foot = card.querySelector(".kx-foot");
  const marked = text => text.split("`").map((bit, i) => i % 2 ? h("code", {}, bit) : bit);
  body.replaceChildren(...shape.formula.map(([name, text]) =>
    h("p", {class: "kx-formula"}, ...(name ? [h("b", {}, name), " "] : []), ...marked(text))));
  const source = [shape.number && `no. ${shape.number}`, shape.reference].filter(Boolean).join(" · ");
  if (source) body.append(h("p", {class: "kx-soft"}, source));
  if (shape.note) body.append(h("p", {class: "kx-soft"}, shape.note));

  for (const name of Object.keys(variant.choice)) {
    const options = [...new Set(shape.variants.map(v => v.choice[name]))];
    const box = h("select", {id: `${id}-${name}`, onchange: () => choose(key, name, box.value)},
      ...options.map(option => h("option", {value: option}, option)));
    box.value = variant.choice[name];
    body.append(h("div", {class: "kx-control"}, h("label", {for: box.id}, name), box));
  }
  for (const parameter of variant.parameters) {
    const path = parameter.path;
    body.append(control(`${id}-p-${path}`, path, side.p[path],
      {...parameter, words: `${path} of shape ${NAMES[key]}`},
      x => { side.p[path] = x; changed(key); }).row);
  }
  for (const name of variant.needs) {
    const about = DATA.context[name], value = fact(side, name);
    const made = control(`${id}-c-${name}`, about.label, value === null ? about.value : value,
      {...about, words: `${about.label} for shape ${NAMES[key]}`}, x => { side.c[name] = x; changed(key); });
    if (about.auto) {
      const off = () => { made.slider.disabled = made.box.disabled = tick.checked; };
      const tick = h("input", {type: "checkbox", id: `${id}-auto-${name}`, onchange: () => {
        side.c[name] = tick.checked ? null : made.box.valueAsNumber;
        off();
        changed(key);
      }});
      tick.checked = value === null;
      off();
      made.row.append(h("label", {class: "kx-tick"}, tick, `follow ${about.auto}`));
    }
    body.append(made.row);
  }
  const spelled = h("code", {}), extra = h("p", {class: "kx-soft"});
  body.append(extra);
  foot.replaceChildren(spelled, h("button", {type: "button", onclick: () => pick(key, side.shape)}, "Reset"));
  cards[key] = {spelled, extra};
}

function spelling(side) {
  return spec(side).spelling.map((bit, i) => i % 2 && bit in side.p ? number(side.p[bit]) : bit).join("");
}

function pick(key, shape) { state[key] = fresh(shape); buildCard(key); changed(key); }

function choose(key, name, option) {
  const old = state[key], shape = DATA.shapes[old.shape], wanted = {...spec(old).choice, [name]: option};
  const variant = shape.variants.findIndex(v =>
    Object.entries(wanted).every(([k, value]) => v.choice[k] === value));
  const side = fresh(old.shape, variant), p = {...old.p};
  if ("eps" in p) p.low = p.high = p.eps;
  else if ("low" in p) p.eps = p.low;
  for (const path of Object.keys(side.p)) if (path in p) side.p[path] = p[path];
  side.c = old.c;
  state[key] = side;
  buildCard(key);
  root.querySelector(`#kx-${key}-${name}`).focus();
  changed(key);
}

// ---------------------------------------------------------------- plots

const panels = [];

function panel(view, key, height) {
  const caption = h("figcaption"), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const map = view === "map", canvas = map ? h("canvas", {width: COLUMNS, height: LINES}) : null;
  const field = h("div", {class: "kx-field"}, ...(canvas ? [canvas] : []), svg);
  const figure = h("figure", {class: map ? "kx-map" : "kx-curve", "data-view": view, "data-side": key}, caption, field);
  svg.setAttribute("role", "img");
  const made = {view, key, height, caption, svg, canvas, field, figure, width: 0};
  const point = event => {
    const box = svg.getBoundingClientRect(), g = geometry(made);
    const w = g.fromX(event.clientX - box.left), y = g.fromY(event.clientY - box.top);
    if (w < LEFT || w > RIGHT) return;
    state.at = Math.round(w * 1000) / 1000;
    state.over = map ? Math.round(Math.max(BOTTOM, Math.min(TOP, y)) * 100) / 100 : null;
    common.at.show(state.at);
    changed();
  };
  field.addEventListener("pointermove", point);
  field.addEventListener("pointerdown", point);
  panels.push(made);
  return figure;
}

function geometry({width, height, view, scale}) {
  const narrow = width < 260, left = narrow ? 30 : 40, right = 8, top = 6, bottom = 32;
  const [x0, x1] = DATA.ratios, [y0, y1] = view === "map" || view === "map-d" ? [BOTTOM, TOP] : scale || [-1, 1];
  const inner = Math.max(width - left - right, 10), tall = height - top - bottom;
  return {
    narrow, left, top, inner, tall, y0, y1,
    x: w => left + inner * (w - x0) / (x1 - x0),
    y: v => top + tall * (y1 - v) / (y1 - y0),
    fromX: px => x0 + (x1 - x0) * (px - left) / inner,
    fromY: px => y1 - (y1 - y0) * (px - top) / tall,
  };
}

function ticks(low, high, count) {
  const rough = (high - low) / count, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(s => s * unit).find(s => s >= rough), found = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; i++) found.push(Number((i * step).toPrecision(9)));
  return found;
}

function axes(g, yLabel) {
  const bits = [], end = g.top + g.tall;
  for (const w of ticks(DATA.ratios[0], RIGHT, g.narrow ? 3 : 8)) {
    bits.push(`<path d="M${g.x(w)} ${end}v4" stroke="var(--kx-axis)"/>`,
      `<text x="${g.x(w)}" y="${end + 15}" text-anchor="middle">${short(w)}</text>`);
  }
  for (const v of ticks(g.y0, g.y1, 5)) {
    bits.push(`<path d="M${g.left} ${g.y(v)}h-4" stroke="var(--kx-axis)"/>`,
      `<text x="${g.left - 7}" y="${g.y(v) + 4}" text-anchor="end">${short(v)}</text>`);
  }
  bits.push(`<path d="M${g.left} ${g.top}V${end}H${g.left + g.inner}" fill="none" stroke="var(--kx-axis)"/>`,
    `<text x="${g.left + g.inner}" y="${end + 28}" text-anchor="end">ratio w</text>`);
  if (yLabel) bits.push(`<text x="${g.left}" y="${end + 28}">${yLabel}</text>`);
  return bits.join("");
}

function line(g, {x, rows}, index, only) {
  let d = "", pen = false;
  for (let i = 0; i < x.length; i++) {
    const v = rows[i][index];
    if (!Number.isFinite(v) || (only && !only(i))) { pen = false; continue; }
    const y = Math.max(-2000, Math.min(4000, g.y(v)));
    d += `${pen ? "L" : "M"}${g.x(x[i]).toFixed(2)} ${y.toFixed(2)}`;
    pen = true;
  }
  return d;
}

let clips = 0;

function drawCurve(made, data, bandOf, index) {
  const g = geometry(made), end = g.top + g.tall, bits = [], clip = `kx-clip-${made.clip ??= ++clips}`;
  const inside = w => Math.max(g.left, Math.min(g.left + g.inner, g.x(w)));
  bits.push(`<clipPath id="${clip}"><rect x="${g.left}" y="${g.top}" width="${g.inner}" height="${g.tall}"/></clipPath>`);
  if (bandOf) {
    const [l, r] = [inside(bandOf.low), inside(bandOf.high)];
    bits.push(`<rect x="${l}" y="${g.top}" width="${Math.max(r - l, 0)}" height="${g.tall}" fill="var(--kx-band)"${
      bandOf.own ? "" : ' fill-opacity=".55"'}/>`);
  }
  for (const v of ticks(g.y0, g.y1, 5)) bits.push(`<path d="M${g.left} ${g.y(v)}h${g.inner}" stroke="var(--kx-grid)"/>`);
  bits.push(`<path d="M${g.left} ${g.y(0)}h${g.inner}" stroke="var(--kx-axis)" stroke-width=".8"/>`, axes(g),
    `<g clip-path="url(#${clip})" fill="none">`);
  for (const [sign, colour] of [[1, "positive"], [-1, "negative"]]) {
    const stroke = `stroke="var(--kx-${colour})"`, a = sign * state.size;
    if (made.view === "m") bits.push(`<path d="M${g.x(0)} ${g.y(0)}L${g.x(RIGHT)} ${g.y(RIGHT * a)}" ${stroke} stroke-dasharray="5 4"/>`);
    if (made.view === "effective") bits.push(`<path d="M${g.left} ${g.y(a)}h${g.inner}" ${stroke} stroke-dasharray="5 4"/>`);
    bits.push(`<path class="kx-line" d="${line(g, data[sign], index)}" ${stroke} stroke-width="2"/>`);
    for (const {at, left, right} of data[sign].jumps) {
      bits.push(`<path d="M${g.x(at)} ${g.y(left[index])}V${g.y(right[index])}" ${stroke} stroke-dasharray="1.5 2.5"/>`);
    }
  }
  // Where one curve would hide the other, the two alternate in dashes.
  const down = new Map(data[-1].x.map((x, i) => [x, data[-1].rows[i][index]]));
  const shared = i => Math.abs(data[1].rows[i][index] - down.get(data[1].x[i])) < 1e-9;
  bits.push(`<path d="${line(g, data[1], index, shared)}" stroke="var(--kx-positive)" stroke-width="2" stroke-dasharray="7 7"/>`);
  bits.push(`<path d="M${g.x(state.at)} ${g.top}V${end}" stroke="var(--kx-ink)" stroke-width=".8" stroke-opacity=".6"/></g>`);
  for (const [sign, colour] of [[1, "positive"], [-1, "negative"]]) {
    const v = made.values[sign];
    if (v >= g.y0 && v <= g.y1) {
      bits.push(`<circle cx="${g.x(state.at)}" cy="${g.y(v)}" r="3.6" fill="var(--kx-${colour})" stroke="var(--kx-panel)" stroke-width="1.4"/>`);
    }
  }
  made.svg.innerHTML = bits.join("");
}

function drawMap(made, map, bandOf, limit, colours) {
  const g = geometry(made), end = g.top + g.tall, bits = [];
  const image = new ImageData(COLUMNS, LINES), pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < map.length; i++) {
    pixels[i] = colours[Math.max(0, Math.min(256, Math.round(128 * (1 + (map[i] || 0) / limit))))];
  }
  made.canvas.getContext("2d").putImageData(image, 0, 0);
  Object.assign(made.canvas.style, {left: `${g.left}px`, top: `${g.top}px`, width: `${g.inner}px`, height: `${g.tall}px`});
  bits.push(`<path d="M${g.left} ${g.y(0)}h${g.inner}" stroke="var(--kx-axis)" stroke-width=".8"/>`, axes(g, "A"));
  if (bandOf) {
    for (const edge of [bandOf.low, bandOf.high]) {
      if (edge > LEFT && edge < RIGHT) bits.push(`<path d="M${g.x(edge)} ${g.top}V${end}" stroke="var(--kx-neutral)" stroke-dasharray="4 4"/>`);
    }
    const low = Math.max(bandOf.low, 0), high = Math.min(bandOf.high, RIGHT);
    for (const a of bandOf.own ? [TOP / 2, BOTTOM / 2] : []) {
      for (const [from, to] of [[0, low], [low, high], [high, RIGHT]]) {
        if (g.x(to) - g.x(from) < 34) continue;
        const name = part(bandOf, (from + to) / 2, a);
        bits.push(`<text class="kx-plate" x="${g.x((from + to) / 2)}" y="${g.y(a) + 4}" text-anchor="middle" style="fill:var(--kx-${name})">${name}</text>`);
      }
    }
  }
  const a = state.over ?? state.size;
  bits.push(`<circle cx="${g.x(state.at)}" cy="${g.y(Math.min(a, TOP))}" r="4" fill="none" stroke="var(--kx-ink)" stroke-width="1.5"/>`);
  made.svg.innerHTML = bits.join("");
}

/** The colour map of the page's theme as 257 pixels, with 0 in the middle. */
function colourMap() {
  const stops = getComputedStyle(root).getPropertyValue("--kx-map").split(",").map(text =>
    [1, 3, 5].map(i => parseInt(text.trim().slice(i, i + 2), 16)));
  const bytes = new Uint8Array(4 * 257).fill(255);
  for (let i = 0; i <= 256; i++) {
    const at = i / 256 * (stops.length - 1), k = Math.min(Math.floor(at), stops.length - 2);
    bytes.set(stops[k].map((c, j) => Math.round(c + (stops[k + 1][j] - c) * (at - k))), 4 * i);
  }
  return new Uint32Array(bytes.buffer);
}

function caption(made, symbol) {
  const signs = [[1, "positive"], [-1, "negative"]].map(([sign, colour]) => {
    const text = h("b", {}, short(made.values[sign]));
    text.style.color = `var(--kx-${colour})`;
    return text;
  });
  made.caption.replaceChildren(label(made.key),
    h("span", {}, `${symbol} = `, signs[0], ", ", signs[1], where(` at w = ${short(state.at)}`)));
}

function where(text) { return h("span", {class: "kx-where"}, text); }

function label(key) {
  if (key === "d") return h("b", {}, "B − A");
  return h("b", {}, h("span", {class: "kx-side"}, NAMES[key]), DATA.shapes[state[key].shape].title);
}

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
  for (const made of panels) {
    if (!made.width) continue;
    const {view, key} = made, r = results[key];
    if (view === "map") {
      const data = key === "d" ? results.d : r;
      if (!data) continue;
      const beta = key === "d" ? values.b.over - values.a.over : values[key].over;
      const name = key !== "d" && r.band.own ? part(r.band, state.at, over) : "";
      made.caption.replaceChildren(label(key), h("span", {}, `${key === "d" ? "Δβ" : "β"} = `, h("b", {}, short(beta)),
        where(` at w = ${short(state.at)},`), ` A = ${short(over)}`), h("b", {style: `color:var(--kx-${name})`}, name));
      drawMap(made, data.map, key === "d" ? null : r.band, results.limit, colours);
    } else if (key === "d") {
      if (!results.d) continue;
      made.scale = results.scales.d;
      made.values = {1: values.b[1][0] - values.a[1][0], [-1]: values.b[-1][0] - values.a[-1][0]};
      caption(made, "Δm");
      drawCurve(made, results.d.curves, null, 0);
    } else {
      const index = Object.keys(VIEWS).indexOf(view);
      made.scale = results.scales[view];
      made.values = {1: values[key][1][index], [-1]: values[key][-1][index]};
      caption(made, ["m", "β", "m/w"][index]);
      drawCurve(made, r.curves, r.band, index);
    }
    const name = key === "d" ? "Difference B − A" : `Shape ${NAMES[key]}, ${spelling(state[key])}`;
    made.svg.setAttribute("aria-label", `${name}: ${made.title} against the ratio w. ${made.caption.textContent}`);
  }
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
    const found = DATA.shapes.findIndex(shape => shape.title === kept.get(key));
    const side = fresh(found < 0 ? DATA.start[i] : found), shape = DATA.shapes[side.shape];
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
  state.difference = kept.get("difference") === "1";
  return true;
}

// ---------------------------------------------------------------- start

const common = {};

function refresh() {
  SIDES.forEach(key => { buildCard(key); stale.add(key); });
  common.size.show(state.size);
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
  root.querySelector(".kx-common").append(common.size.row, common.at.row,
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
    row("differences", "Difference B − A", "the same for m and for β: wA cancels", panel("d", "d", 210), panel("map", "d", 210)));

  root.klip = {DATA, CODE, state, results, evaluate: (code, l, a, p, c) => { const o = [0, 0, 0]; CODE[code](l, a, p, c, o); return o; }};
  recall();
  legend();
  refresh();
  untouched = write();
  const watch = new ResizeObserver(() => {
    for (const made of panels) {
      made.width = Math.floor(made.field.clientWidth);
      made.svg.setAttribute("width", made.width);
      made.svg.setAttribute("height", made.height);
    }
    changed();
  });
  watch.observe(root);
  for (const made of panels) watch.observe(made.field);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours = null; changed(); });
  addEventListener("hashchange", () => { if (location.hash !== address && recall()) refresh(); });
}

function legend() {
  const size = short(state.size), swatch = inner => {
    const made = h("span");
    made.innerHTML = `<svg style="display:inline" viewBox="0 0 27 12">${inner}</svg>`;
    return made;
  };
  const item = (inner, text) => { const made = swatch(inner); made.append(text); return made; };
  root.querySelector(".kx-key").replaceChildren(
    item('<path d="M0 6h27" stroke="var(--kx-positive)" stroke-width="2.4"/>', `A = +${size}`),
    item('<path d="M0 6h27" stroke="var(--kx-negative)" stroke-width="2.4"/>', `A = −${size}`),
    item('<path d="M0 6h27" stroke="var(--kx-neutral)" stroke-dasharray="5 4"/>', "unconstrained"),
    item('<rect width="27" height="12" fill="var(--kx-band)"/>', "band"));
}

let untouched = "";
start();
})();
