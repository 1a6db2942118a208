// ---------------------------------------------------------------- arms

const MOST = 0.6, simplexes = [];

/** The bandit of three arms, or of two: old probabilities and advantages, which average to 0. */
function bandit(count) {
  const p = count === 2 ? [state.mass, 1 - state.mass]
    : [state.mass, 0.6 * (1 - state.mass), 0.4 * (1 - state.mass)];
  const a = count === 2 ? [1, -p[0] / p[1]] : [1, (p[2] - p[0]) / p[1], -1];
  return {p, a: a.map(x => x * state.size)};
}

/** (log w of each arm) => m/w of each: a shape that asks gets the arm's old probability and the state's KL. */
function effective(side, {p, a}) {
  const {parameters, needs, code, weighs} = spec(side), f = CODE[code], c = new Float64Array(needs.length);
  const numbers = parameters.map(({path}) => side.p[path]), out = [0, 0, 0];
  const fixed = needs.map(name => fact(side, name));
  return logs => {
    const kl = Math.max(0, -p.reduce((sum, x, i) => sum + x * logs[i], 0)), m = [];
    let weight = 0;
    for (let i = 0; i < p.length; i++) {
      needs.forEach((name, j) => {
        c[j] = name === "old_log_prob" ? Math.log(p[i]) : name === "kl" ? kl
          : fixed[j] === null ? AUTO[name](logs[i], a[i]) : fixed[j];
      });
      f(logs[i], a[i], numbers, c, out);
      m.push(out[0]);
      if (weighs) weight += p[i] * out[2];
    }
    return m.map((x, i) => {  // the closed-form KL of a state has the gradient of k3
      const w = Math.exp(Math.max(-20, Math.min(20, logs[i])));
      return (x + weight * (1 - w)) / w;
    });
  };
}

/** The policies on the way of the inner loop from the old one; the last is where it ends. */
function ends(side, count) {
  const arms = bandit(count), g = effective(side, arms), {p} = arms, way = [p];
  let logs = p.map(() => 0);
  for (const [rate, steps] of [[0.02, 4000], [0.002, 1000]]) {
    for (let n = 1; n <= steps; n++) {
      const pull = g(logs), mean = pull.reduce((sum, x, i) => sum + p[i] * Math.exp(logs[i]) * x, 0);
      logs = logs.map((l, i) => Math.max(-40, Math.min(40, l + Math.max(-2, Math.min(2, rate * (pull[i] - mean))))));
      const total = Math.log(p.reduce((sum, x, i) => sum + x * Math.exp(logs[i]), 0));
      logs = logs.map(l => l - total);
      if (n % 50 === 0) way.push(p.map((x, i) => x * Math.exp(logs[i])));
    }
  }
  return way;
}

function arms(key) {
  const caption = h("figcaption"), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const field = h("div", {class: "kx-field"}, svg);
  svg.setAttribute("role", "img");
  simplexes.push({key, caption, svg, field});
  return h("figure", {class: "kx-simplex", "data-view": "arms", "data-side": key}, caption, field);
}

const TALL = 300, CORNERS = [[0, 0], [1, 0], [0.5, Math.sqrt(0.75)]];

function drawArms() {
  for (const plot of simplexes) {
    const width = Math.floor(plot.field.clientWidth), side = state[plot.key];
    const known = JSON.stringify([side, state.mass, state.size, width]);
    if (!width || plot.known === known) continue;  // a pointer that moves changes nothing here
    plot.known = known;
    const scale = Math.min(width - 90, 230), left = (width - scale) / 2, base = 222;
    const place = q => [0, 1].map(i => q.reduce((sum, x, j) => sum + x * CORNERS[j][i], 0));
    const at = q => { const [x, y] = place(q); return [left + scale * x, base - scale * y]; };
    const dots = points => points.map(q => at(q).map(v => v.toFixed(1)).join(" ")).join("L");
    const three = bandit(3), way = ends(side, 3), two = ends(side, 2), bits = [];
    bits.push(`<path d="M${dots(fallen(three.a))}Z" fill="var(--kx-band)"/>`,
      `<path d="M${dots([[1, 0, 0], [0, 1, 0], [0, 0, 1]])}Z" fill="none" stroke="var(--kx-axis)"/>`);
    const g = effective(side, three);
    for (let i = 1; i < 15; i++) for (let j = 1; i + j < 15; j++) bits.push(arrow([i / 15, j / 15, 1 - (i + j) / 15], three, g, at));
    bits.push(`<path d="M${dots(way)}" fill="none" stroke="var(--kx-positive)" stroke-width="1.8"/>`,
      mark(at(three.p), "old"), mark(at(way[way.length - 1]), "end"));
    three.a.forEach((a, i) => {
      const [x, y] = at([0, 1, 2].map(j => +(j === i)));
      bits.push(`<text x="${x}" y="${y + (i === 2 ? -6 : 15)}" text-anchor="middle">A ${short(a)}, p ${short(three.p[i])}</text>`);
    });
    bits.push(strip(two, left, scale));
    plot.svg.setAttribute("width", width);
    plot.svg.setAttribute("height", TALL);
    plot.svg.innerHTML = bits.join("");
    const end = way[way.length - 1], w = two[two.length - 1][0] / state.mass;
    const tv = end.reduce((sum, q, i) => sum + Math.abs(q - three.p[i]) / 2, 0);
    plot.caption.replaceChildren(label(plot.key), h("span", {}, "three arms end at TV ", h("b", {}, short(tv))),
      h("span", {}, "of two, the good one ends at w = ", h("b", {}, short(w)), ` of at most ${short(1 / state.mass)}`));
    plot.svg.setAttribute("aria-label", `Shape ${NAMES[plot.key]}, ${spelling(side)}: the flow of its inner loop. ${plot.caption.textContent}`);
  }
}

/** The corners of the part of the simplex in which the mean advantage is negative. */
function fallen(a) {
  const points = [], corner = i => [0, 1, 2].map(j => +(j === i));
  for (let i = 0; i < 3; i++) {
    const k = (i + 1) % 3, [here, there] = [corner(i), corner(k)];
    if (a[i] < 0) points.push(here);
    if (a[i] * a[k] < 0) {
      const t = a[i] / (a[i] - a[k]);
      points.push(here.map((x, j) => x + t * (there[j] - x)));
    }
  }
  return points;
}

function arrow(q, {p}, g, at) {
  const pull = g(q.map((x, i) => Math.log(x / p[i]))), mean = pull.reduce((sum, x, i) => sum + q[i] * x, 0);
  const move = q.map((x, i) => x * (pull[i] - mean)), [x, y] = at(q), [u, v] = at(q.map((z, i) => z + move[i]));
  const size = Math.hypot(u - x, v - y);
  if (!(size > 1e-6)) return `<circle cx="${x}" cy="${y}" r="1.2" fill="var(--kx-axis)"/>`;
  const [c, s] = [(u - x) / size, (v - y) / size], tip = [x + 9 * c, y + 9 * s];
  const wing = t => `${(tip[0] - 4 * c + t * s).toFixed(1)} ${(tip[1] - 4 * s - t * c).toFixed(1)}`;
  return `<path d="M${x.toFixed(1)} ${y.toFixed(1)}L${tip[0].toFixed(1)} ${tip[1].toFixed(1)}M${wing(2)}L${tip[0].toFixed(1)} ${tip[1].toFixed(1)}L${wing(-2)}" fill="none" stroke="var(--kx-axis)" stroke-width="1"/>`;
}

function mark([x, y], kind) {
  return kind === "old" ? `<circle cx="${x}" cy="${y}" r="4.5" fill="var(--kx-positive)" stroke="var(--kx-panel)"/>`
    : `<rect x="${x - 4.5}" y="${y - 4.5}" width="9" height="9" fill="var(--kx-kill)" stroke="var(--kx-panel)"/>`;
}

/** Two arms: the ratio of the good one from 1 to 1/P, its way and its end. */
function strip(way, left, scale) {
  const y = 268, top = 1 / state.mass, x = w => left + scale * Math.log(Math.max(w, 1)) / Math.log(top);
  const end = way[way.length - 1][0] / state.mass;
  const names = [[1, "start"], [top, "end"]].map(([w, anchor]) => `<text x="${x(w)}" y="${y + 20}" text-anchor="${anchor}">w = ${short(w)}</text>`);
  return `<path d="M${left} ${y}h${scale}" stroke="var(--kx-axis)"/><path d="M${x(1)} ${y}H${x(end)}" stroke="var(--kx-positive)" stroke-width="2.4"/>${mark([x(1), y], "old")}${mark([x(end), y], "end")}${names.join("")}<text x="${left + scale / 2}" y="${y + 20}" text-anchor="middle">two arms</text>`;
}
