(() => {
"use strict";
// Each function sets o: [m, beta, weight of the closed-form KL] or [lower edge, upper edge].
// l is log w, a the advantage, p the parameters, c the context, both in the order of their lists.
const CODE = [
{{ code }}
];
const DATA = {{ data }};

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

{% include "explorer/curves.js" %}

{% include "explorer/elements.js" %}

{% include "explorer/plots.js" %}

{% include "explorer/arms.js" %}

{% include "explorer/drawing.js" %}

{% include "explorer/start.js" %}


let untouched = "";
start();
})();
