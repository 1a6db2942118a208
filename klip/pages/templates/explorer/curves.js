// ---------------------------------------------------------------- state

const state = {size: 1, mass: 0.2, at: 1.25, difference: false, a: null, b: null};

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
