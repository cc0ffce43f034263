// All runs, and one run as it trains: asked again every second while the page is looked at.

import { ask, byId, element, lose, Refused } from "./ask.js";
import { draw } from "./chart.js";

const AGAIN = 1000;
let timer, shown = "";

export function stop() {
  clearTimeout(timer);
}

function again(show) {
  stop();
  const turn = async () => {
    let wait = AGAIN;
    try {
      if (!document.hidden) wait = (await show()) || AGAIN;
    } catch (error) {
      if (!(error instanceof Refused)) lose();
    }
    if (timer === own) timer = own = setTimeout(turn, wait);
  };
  let own = (timer = setTimeout(turn, 0));
}

export function startList() {
  again(async () => {
    const found = await ask("api/runs");
    byId("runs-subtitle").textContent = found.runs.length
      ? `In the folder ${found.folder}, the latest first.`
      : `There is no run in the folder ${found.folder} yet. Train one: sfumato train`;
    refresh(byId("runs"), found.runs.map((run) => [run.name, JSON.stringify(run), () => row(run)]));
    return 2 * AGAIN;
  });
}

// Rows are made anew only where something has changed, so that nothing jumps and the focus stays.
function refresh(body, rows) {
  const old = new Map([...body.children].map((child) => [child.dataset.name, child]));
  const next = rows.map(([name, key, make]) => {
    const before = old.get(name);
    if (before?.dataset.key === key) return before;
    const made = make();
    made.dataset.name = name;
    made.dataset.key = key;
    return made;
  });
  if (next.length !== body.children.length || next.some((child, at) => child !== body.children[at])) body.replaceChildren(...next);
}

// An epsilon says nothing without its delta, and runs have different ones.
function epsilon(run) {
  const known = run.delta !== "–" && Number.isFinite(Number(run.epsilon));
  return known ? element("span", {}, run.epsilon, element("span", { class: "note whole" }, run.delta)) : run.epsilon;
}

function row(run) {
  const link = element("a", { href: `#runs/${encodeURIComponent(run.name)}` }, run.name);
  const state = element("span", { class: `state-of ${run.state}` }, run.state);
  if (run.state === "unreadable") return element("tr", {}, element("td", {}, run.name), element("td", {}, state), element("td", { colspan: "4" }, run.words));
  const about = element("span", { class: "note" }, `${run.recipe} on ${run.data}`);
  const cells = [`${run.round.toLocaleString("en")} of ${run.rounds.toLocaleString("en")}`, run.accuracy, epsilon(run), run.audit].map((text, at) => element("td", at % 3 ? {} : { class: "roomy" }, text));
  return element("tr", {}, element("td", {}, link, about), element("td", {}, state), ...cells);
}

export function startOne(name) {
  shown = "";
  byId("run-name").textContent = name;
  again(async () => {
    let run;
    try {
      run = await ask("api/run", { name });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      byId("run-state").textContent = error.message;
      return 3 * AGAIN;
    }
    const text = JSON.stringify(run);
    if (text !== shown) show(run);
    shown = text;
    return ["training", "preparing"].includes(run.state) ? AGAIN : 3 * AGAIN;
  });
}

function show(run) {
  byId("run-subtitle").textContent = `${run.recipe} on ${run.data}`;
  byId("run-state").replaceChildren(element("span", { class: `state-of ${run.state}` }, run.words));
  byId("run-progress").max = run.rounds;
  byId("run-progress").value = run.round;
  const ended = ["finished", "stopped"].includes(run.state), training = ["training", "preparing"].includes(run.state);
  const tiles = [[ended ? "Epsilon" : "Epsilon so far", run.epsilon], ["Delta", run.delta], [run.measure, run.accuracy],
    ["Round", `${run.round.toLocaleString("en")} of ${run.rounds.toLocaleString("en")}`]];
  byId("run-numbers").replaceChildren(...tiles.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, String(text)))));
  const charts = byId("run-charts");
  if (charts.children.length === 0) charts.append(...[1, 2, 3].map(() => element("figure", {}, element("figcaption"), element("div", { class: "chart" }))));
  const kinds = [["accuracy", run.measure, "Nothing was measured on public test data yet."],
    ["epsilon", "Epsilon", ended ? "Nothing is proven for this run." : "No epsilon yet."], ["loss", "Loss", "No loss was measured."]];
  kinds.forEach(([key, title, none], at) => {
    const [caption, place] = charts.children[at].children, line = run.curves[key];
    caption.textContent = `${title} by round`;
    const percent = key === "accuracy" && run.accuracy.includes("%");
    const words = line ? `${title} by round: ${line.said[0]}; ${line.said.at(-1)}.` : none;
    draw(place, line, { x: "Round", y: title, words, none, percent, fromZero: key === "epsilon", xRange: [0, training ? run.rounds : Math.max(1, run.round)] });
  });
  links(run, ended);
  byId("run-guarantee").innerHTML = run.guarantee; // escaped by the functions of the report that made it
  byId("run-audits").innerHTML = run.audits;
}

function links(run, ended) {
  const found = [element("a", { href: `#ledgers/${encodeURIComponent(run.name)}` }, "Its ledger")];
  if (ended) found.unshift(element("a", { href: `report?run=${encodeURIComponent(run.name)}`, target: "_blank", rel: "noopener" }, "The whole report"));
  byId("run-links").replaceChildren(...found);
}
