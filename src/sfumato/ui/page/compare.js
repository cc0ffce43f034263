// Several runs side by side: the page that `sfumato report` writes, inside this one.

import { ask, byId, element, lose, Refused } from "./ask.js";

export async function start(words) {
  const chosen = new Set(words.map(decodeURIComponent));
  let found;
  try {
    found = (await ask("api/runs")).runs;
  } catch (error) {
    if (!(error instanceof Refused)) lose();
    return;
  }
  byId("compare-choose").replaceChildren(...(found.length ? found.map((run) => choice(run, chosen)) : ["There is no run yet."]));
  show(found.filter((run) => chosen.has(run.name) && ended(run)).map((run) => run.name));
}

const ended = (run) => ["finished", "stopped"].includes(run.state);

function choice(run, chosen) {
  const box = element("input", { type: "checkbox", value: run.name });
  box.checked = chosen.has(run.name) && ended(run);
  box.disabled = !ended(run);
  box.addEventListener("change", () => {
    const names = [...byId("compare-choose").querySelectorAll(":checked")].map((one) => one.value);
    history.replaceState(null, "", `#compare/${names.map(encodeURIComponent).join("/")}`);
    show(names);
  });
  return element("label", ended(run) ? {} : { class: "off" }, box, run.name, ended(run) ? "" : ` (${run.state})`);
}

function show(names) {
  const page = byId("compare-page");
  page.hidden = names.length === 0;
  byId("compare-state").textContent = names.length ? "Drawing the page of these runs." : "";
  if (names.length === 0) return page.removeAttribute("src");
  const query = new URLSearchParams(names.map((name) => ["run", name]));
  page.onload = () => {
    byId("compare-state").textContent = "";
    const inside = page.contentDocument?.documentElement;
    if (!inside) return;
    const fit = () => (page.style.height = `${inside.querySelector("body").scrollHeight + 2}px`);
    fit();
    new ResizeObserver(fit).observe(inside);
  };
  page.src = `report?${query}`;
}
