// Which view is shown: the part of the address after #, and what follows its first slash.

import * as compare from "./compare.js";
import * as ledgers from "./ledgers.js";
import * as plan from "./plan.js";
import * as runs from "./runs.js";

const TITLES = { plan: "Plan a budget", runs: "Runs", run: "A run", compare: "Compare runs", ledgers: "Ledgers" };

function route() {
  const [first, ...words] = location.hash.slice(1).split("/");
  if (first === "content") return;
  const tab = first in TITLES ? first : "plan", view = tab === "runs" && words.length ? "run" : tab;
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `view-${view}`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${tab}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[view]} · Sfumato`;
  runs.stop();
  if (view === "runs") runs.startList();
  if (view === "run") runs.startOne(decodeURIComponent(words[0]));
  if (view === "compare") compare.start(words);
  if (view === "ledgers") ledgers.start(words);
}

plan.start();
route();
addEventListener("hashchange", route);
