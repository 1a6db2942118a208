"use strict";
// What a model wrote is set by textContent alone: nothing of it can become markup.
(function () {
  const FATES = { k: "kept", w: "weakened", z: "zeroed", r: "reversed", s: "strengthened" };
  const place = document.querySelector("[data-kept]");
  const says = document.querySelector("output.token-says");
  const groups = JSON.parse(document.getElementById("klip-data").textContent).kept;
  if (!place || !groups) return;

  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const line = (row, shape) => {
    const code = make("code");
    if (row.prompt) code.append(make("span", "asked", row.prompt));
    row.texts.forEach((text, i) => {
      const fate = FATES[shape.fates[i]];
      const token = make("span", "token " + fate, text);
      const m = String(shape.m[i]).replace("-", "−");
      token.dataset.told = text + "  " + fate + ": " + row.told[i].replace(/-/g, "−") + ", m " + m;
      token.title = token.dataset.told;
      code.append(token);
    });
    return code;
  };
  const completion = (row) => {
    const sample = make("div", row.shapes.length > 1 ? "sample many" : "sample");
    for (const shape of row.shapes) {
      const column = make("div", "column");
      if (row.shapes.length > 1) column.append(make("span", "by", shape.name));
      column.append(line(row, shape));
      sample.append(column);
    }
    const about = make("span", "about");
    const verdict = row.about.match(/^(right|wrong)(.*)$/);
    if (verdict) about.append(make("span", verdict[1], verdict[1]), verdict[2]);
    else about.textContent = row.about;
    sample.append(about);
    return sample;
  };
  const filled = (group) => {
    const body = make("div");
    const rows = make("div", "rows");
    const show = (i) => {
      const some = group.steps[i] ? group.steps[i].rows : [];
      rows.replaceChildren(...some.map(completion));
      if (!some.length) rows.append(make("p", "empty", "No completion was kept here."));
    };
    if (group.steps.length > 1) {
      const label = make("label", "steps", "step ");
      const slider = make("input");
      Object.assign(slider, { type: "range", min: 0, max: group.steps.length - 1, value: 0 });
      const at = make("output", "step", String(group.steps[0].step));
      slider.addEventListener("input", () => {
        at.textContent = String(group.steps[slider.value].step);
        show(Number(slider.value));
      });
      label.append(slider, at);
      body.append(label);
    }
    body.append(rows);
    show(0);
    return body;
  };
  groups.forEach((group, i) => {
    const details = make("details");
    const summary = make("summary", "", group.name + " ");
    summary.append(make("span", "quiet", group.about));
    details.append(summary);
    let drawn = false;
    const draw = () => {
      if (!drawn) details.append(filled(group));
      drawn = true;
    };
    details.addEventListener("toggle", () => { if (details.open) draw(); });
    if (!i) { details.open = true; draw(); }
    place.append(details);
  });

  const tell = (event) => {
    const token = event.target.closest(".token[data-told]");
    if (!token) return;
    for (const other of document.querySelectorAll(".token.told")) other.classList.remove("told");
    token.classList.add("told");
    says.textContent = token.dataset.told;
  };
  document.addEventListener("pointerover", tell);
  document.addEventListener("click", tell);
})();
