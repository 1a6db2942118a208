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

/** Makes the controls of one side anew, after another shape was picked or all was reset. */
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
    const setting = control(`${id}-c-${name}`, about.label, value === null ? about.value : value,
      {...about, words: `${about.label} for shape ${NAMES[key]}`}, x => { side.c[name] = x; changed(key); });
    if (about.auto) {
      const off = () => { setting.slider.disabled = setting.box.disabled = tick.checked; };
      const tick = h("input", {type: "checkbox", id: `${id}-auto-${name}`, onchange: () => {
        side.c[name] = tick.checked ? null : setting.box.valueAsNumber;
        off();
        changed(key);
      }});
      tick.checked = value === null;
      off();
      setting.row.append(h("label", {class: "kx-tick"}, tick, `follow ${about.auto}`));
    }
    body.append(setting.row);
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
