// What was spent, in the words of `sfumato ledger`.

import { ask, byId, element, latest, lose, Refused } from "./ask.js";

const askLedger = latest("api/ledger", 120, show, (words) => byId("ledger-page").replaceChildren(element("p", { class: "caution" }, words)));
let ready = false;

export async function start(words) {
  let names;
  try {
    names = await ask("api/ledgers");
  } catch (error) {
    if (!(error instanceof Refused)) lose();
    return;
  }
  const choose = byId("ledger");
  choose.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  const wanted = decodeURIComponent(words[0] ?? "");
  if (names.includes(wanted)) choose.value = wanted;
  if (!ready) {
    choose.addEventListener("change", () => { history.replaceState(null, "", `#ledgers/${encodeURIComponent(choose.value)}`); change(); });
    byId("ledger-delta").addEventListener("input", change);
    ready = true;
  }
  if (names.length) change();
  else byId("ledger-page").replaceChildren(element("p", { class: "note" }, "There is no ledger yet. Every run has one, from its first round on."));
}

function change() {
  askLedger({ name: byId("ledger").value, delta: byId("ledger-delta").value });
}

function guarantee(one) {
  if (one.epsilon === null) return [element("p", { class: "sentence" }, one.rows[0][1])];
  return [
    element("p", { class: "promise" }, `${one.headline[0].toUpperCase()}${one.headline.slice(1)}`),
    element("dl", { class: "rows" }, ...one.rows.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])),
    element("p", { class: "label assuming" }, "Assumptions"),
    element("ul", {}, ...one.assumptions.map((text) => element("li", {}, text))),
  ];
}

function show(found) {
  const settled = found.unsettled ? `, ${found.unsettled} of them never settled (they count)` : "";
  const first = element("section", { class: "guarantee" }, element("p", { class: "label" }, "All runs together"),
    ...found.guarantees.flatMap(guarantee));
  const rows = found.runs.map(([name, text]) => element("tr", {}, element("th", { scope: "row" }, element("code", {}, name)), element("td", {}, text)));
  const budgets = found.budget ? [`Common budget: ${found.budget}.`] : found.own_budgets.length ? [] : ["No common budget is set."];
  const own = found.own_budgets.map((text) => `${text[0].toUpperCase()}${text.slice(1)}.`);
  const shared = found.shared ? [`This run also spends from a ledger that it shares with others: ${found.shared}`] : [];
  byId("ledger-page").replaceChildren(
    element("p", {}, `Population ${found.population}: ${found.reserved} round${found.reserved === 1 ? "" : "s"} reserved${settled}. Epsilon is read at delta ${found.delta_said}.`),
    first,
    ...[...budgets, ...own, ...found.notes, ...shared].map((text) => element("p", {}, text)),
    element("h2", {}, "Runs"),
    element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Run"), element("th", { scope: "col" }, "What it has done"))), element("tbody", {}, ...rows))),
  );
}
