"use strict";
(function () {
  const says = document.querySelector("output.token-says");
  if (!says) return;
  const tell = (event) => {
    const token = event.target.closest(".token");
    if (!token) return;
    for (const other of document.querySelectorAll(".token.told")) other.classList.remove("told");
    token.classList.add("told");
    says.textContent = token.dataset.told;
  };
  document.addEventListener("pointerover", tell);
  document.addEventListener("click", tell);
})();
