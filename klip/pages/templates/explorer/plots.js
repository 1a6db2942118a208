// ---------------------------------------------------------------- plots

const panels = [];

function panel(view, key, height) {
  const caption = h("figcaption"), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const map = view === "map", canvas = map ? h("canvas", {width: COLUMNS, height: LINES}) : null;
  const field = h("div", {class: "kx-field"}, ...(canvas ? [canvas] : []), svg);
  const figure = h("figure", {class: map ? "kx-map" : "kx-curve", "data-view": view, "data-side": key}, caption, field);
  svg.setAttribute("role", "img");
  const plot = {view, key, height, caption, svg, canvas, field, figure, width: 0};
  const point = event => {
    const box = svg.getBoundingClientRect(), g = geometry(plot);
    const w = g.fromX(event.clientX - box.left), y = g.fromY(event.clientY - box.top);
    if (w < LEFT || w > RIGHT) return;
    state.at = Math.round(w * 1000) / 1000;
    state.over = map ? Math.round(Math.max(BOTTOM, Math.min(TOP, y)) * 100) / 100 : null;
    common.at.show(state.at);
    changed();
  };
  field.addEventListener("pointermove", point);
  field.addEventListener("pointerdown", point);
  panels.push(plot);
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
  const step = [1, 2, 5, 10].map(s => s * unit).find(s => s >= rough), places = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; i++) places.push(Number((i * step).toPrecision(9)));
  return places;
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

function drawCurve(plot, data, bandOf, index) {
  const g = geometry(plot), end = g.top + g.tall, bits = [], clip = `kx-clip-${plot.clip ??= ++clips}`;
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
    if (plot.view === "m") bits.push(`<path d="M${g.x(0)} ${g.y(0)}L${g.x(RIGHT)} ${g.y(RIGHT * a)}" ${stroke} stroke-dasharray="5 4"/>`);
    if (plot.view === "effective") bits.push(`<path d="M${g.left} ${g.y(a)}h${g.inner}" ${stroke} stroke-dasharray="5 4"/>`);
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
    const v = plot.values[sign];
    if (v >= g.y0 && v <= g.y1) {
      bits.push(`<circle cx="${g.x(state.at)}" cy="${g.y(v)}" r="3.6" fill="var(--kx-${colour})" stroke="var(--kx-panel)" stroke-width="1.4"/>`);
    }
  }
  plot.svg.innerHTML = bits.join("");
}

function drawMap(plot, map, bandOf, limit, colours) {
  const g = geometry(plot), end = g.top + g.tall, bits = [];
  const image = new ImageData(COLUMNS, LINES), pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < map.length; i++) {
    pixels[i] = colours[Math.max(0, Math.min(256, Math.round(128 * (1 + (map[i] || 0) / limit))))];
  }
  plot.canvas.getContext("2d").putImageData(image, 0, 0);
  Object.assign(plot.canvas.style, {left: `${g.left}px`, top: `${g.top}px`, width: `${g.inner}px`, height: `${g.tall}px`});
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
  plot.svg.innerHTML = bits.join("");
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

function caption(plot, symbol) {
  const signs = [[1, "positive"], [-1, "negative"]].map(([sign, colour]) => {
    const text = h("b", {}, short(plot.values[sign]));
    text.style.color = `var(--kx-${colour})`;
    return text;
  });
  plot.caption.replaceChildren(label(plot.key),
    h("span", {}, `${symbol} = `, signs[0], ", ", signs[1], where(` at w = ${short(state.at)}`)));
}

function where(text) { return h("span", {class: "kx-where"}, text); }

function label(key) {
  if (key === "d") return h("b", {}, "B − A");
  return h("b", {}, h("span", {class: "kx-side"}, NAMES[key]), DATA.shapes[state[key].shape].title);
}
