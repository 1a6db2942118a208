"use strict";
// A reader may hide shapes, show what was smoothed, and see where they are; the page refreshes itself.
(function () {
  const { data, hidden, drawn, state } = klip;
  for (const button of document.querySelectorAll(".legend button[aria-pressed=false]")) hidden.add(button.dataset.label);
  try {
    const kept = JSON.parse(sessionStorage.getItem("klip-hidden"));
    if (data.refresh && Array.isArray(kept)) { hidden.clear(); kept.forEach((label) => hidden.add(label)); }
  } catch (_) { /* storage may be forbidden: then nothing is remembered */ }

  function press() {
    for (const button of document.querySelectorAll(".legend button")) {
      button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.label)));
    }
  }
  press();
  klip.fold();
  klip.watch();

  function changed() {
    press();
    try { sessionStorage.setItem("klip-hidden", JSON.stringify([...hidden])); } catch (_) { /* as above */ }
    for (const element of drawn.keys()) {
      const places = element.data.map((t, i) => (t.meta && t.visible === hidden.has(t.meta[0]) ? i : -1)).filter((i) => i >= 0);
      if (places.length) Plotly.restyle(element, { visible: places.map((i) => !hidden.has(element.data[i].meta[0])) }, places);
    }
    klip.fold();
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".legend button"), choice = event.target.closest("[data-show]");
    if (button && !hidden.delete(button.dataset.label)) hidden.add(button.dataset.label);
    if (choice) {
      const chosen = new Set(data.choice[choice.dataset.show]);
      for (const label of data.choice.all) chosen.has(label) ? hidden.delete(label) : hidden.add(label);
    }
    if (button || choice) changed();
  });
  document.getElementById("raw")?.addEventListener("change", (event) => {
    state.raw = event.target.checked;
    klip.again();
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
    const live = document.getElementById("live");
    setInterval(() => {
      if (document.hidden) return;
      if (state.touched) live.textContent = "Not refreshed since you zoomed in: load the page again to see what is new.";
      else location.reload();
    }, data.refresh * 1000);
  }
})();
