// The planner: controls become a question, and the server's answer becomes words and a picture. No privacy is computed here.

import { byId, element, latest } from "./ask.js";
import { draw } from "./chart.js";

const STEPS = 1000; // of a slider, from its lowest value to its highest, evenly in powers
const controls = {};
let given = "noise"; // the one of noise and epsilon that was moved last; the other one is found

export function start() {
  for (const place of document.querySelectorAll(".control")) controls[place.dataset.name] = control(place);
  for (const radio of document.querySelectorAll("[name=sampling]")) radio.addEventListener("change", change);
  byId("usual").addEventListener("change", change);
  document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
  change();
}

function control(place) {
  const name = place.dataset.name, number = place.querySelector("[type=number]"), slider = place.querySelector("[type=range]");
  const low = Math.log(Number(place.dataset.low)), high = Math.log(Number(place.dataset.high)), whole = "whole" in place.dataset;
  slider.min = 0;
  slider.max = STEPS;
  const position = (value) => Math.round(((Math.log(value) - low) / (high - low)) * STEPS);
  const follow = () => {
    slider.value = number.value > 0 ? position(Number(number.value)) : 0;
    slider.setAttribute("aria-valuetext", number.value);
  };
  const touched = () => {
    if (name === "noise" || name === "epsilon") given = name;
    if (name === "delta") byId("usual").checked = false;
    if (name === "rate") document.querySelector("[name=sampling][value=rate]").checked = true;
    change();
  };
  slider.addEventListener("input", () => {
    const value = Math.exp(low + (slider.value / STEPS) * (high - low));
    const digits = Number(value.toPrecision(3));
    number.value = whole ? Math.round(digits) : digits;
    slider.setAttribute("aria-valuetext", number.value);
    touched();
  });
  number.addEventListener("input", () => {
    follow();
    touched();
  });
  follow();
  return { place, number, slider, set: (value) => { number.value = value; follow(); } };
}

function question() {
  const everyone = document.querySelector("[name=sampling]:checked").value === "everyone";
  const value = (name) => controls[name].number.value;
  return {
    population: value("population"),
    rounds: value("rounds"),
    rate: everyone ? undefined : value("rate") || "nothing",
    delta: byId("usual").checked ? undefined : value("delta") || "nothing",
    [given]: value(given) || "nothing",
  };
}

function change() {
  for (const name of ["noise", "epsilon"]) {
    controls[name].place.classList.toggle("found", name !== given);
    controls[name].place.querySelector(".role").textContent = name === given ? "given" : "found";
  }
  const asked = question();
  controls.rate.slider.disabled = controls.rate.number.disabled = asked.rate === undefined;
  document.querySelector(".answer").classList.add("waiting");
  askCost(asked);
  askAttack(asked);
}

const askCost = latest("api/cost", 60, showCost, refuse);
const askAttack = latest("api/attack", 160, showAttack, refuseAttack, true);

function showCost(found, settled) {
  document.querySelector(".answer").classList.toggle("waiting", !settled);
  document.querySelector(".answer .guarantee").classList.remove("refused");
  byId("answer-epsilon").value = found.epsilon_said;
  byId("answer-delta").value = found.delta_said;
  byId("answer-noise").value = found.noise_said;
  const other = given === "noise" ? "epsilon" : "noise";
  if (settled) controls[other].set(found[`${other}_said`]);
  if (settled && byId("usual").checked) controls.delta.set(found.delta_said);
  byId("cohort").value = found.cohort;
  byId("caution").textContent = found.caution ? `Caution: ${found.caution}` : "";
  byId("answer-words").textContent = `${found.words[0].toUpperCase()}${found.words.slice(1)}`;
  byId("details").replaceChildren(...found.details.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
  byId("commands").replaceChildren(...Object.entries(found.commands).map(([name, text]) => command(name, text)));
}

function command(name, text) {
  const copy = element("button", { type: "button", "aria-label": `Copy the command sfumato ${name}` }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const words = text.split(" --").map((word, at, all) => element("span", {}, (at ? "--" : "") + word + (at < all.length - 1 ? " " : ""))); // lines break between options
  return element("div", {}, element("pre", {}, element("code", {}, ...words)), copy);
}

function refuse(words) {
  document.querySelector(".answer").classList.remove("waiting");
  document.querySelector(".answer .guarantee").classList.add("refused");
  for (const id of ["answer-epsilon", "answer-delta", "answer-noise"]) byId(id).value = "–";
  byId("answer-words").textContent = words;
  byId("caution").textContent = byId("cohort").value = "";
  for (const id of ["details", "commands"]) byId(id).replaceChildren(); // what they say is of another question
}

function refuseAttack() {
  draw(byId("attack"), null, { none: "There is nothing to draw." });
  byId("attack-words").textContent = "";
}

function showAttack(found) {
  const line = { xs: found.false_alarms, ys: found.misses, said: found.said };
  const words = `Whoever guesses, with even odds, whether one client is in the data is right at most ${found.guess} of the time; a coin is right 50 %. `
    + `With false alarms for ${found.at} of those who are not, they find at most ${found.found} of those who are.`;
  draw(byId("attack"), line, {
    x: "False alarms", y: "Misses", words: `Misses against false alarms. ${words}`, percent: true, diagonal: true, under: true,
    xRange: [0, 1], yRange: [0, 1], remark: "dotted: nothing can be told",
  });
  byId("attack-words").textContent = words;
}
