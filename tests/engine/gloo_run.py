"""A run that torchrun starts, whose first worker dies in the second round. Not a test itself."""

from __future__ import annotations

import sys

from sfumato import Everyone, Plan, Population, classification
from sfumato.engine.on_gloo import gloo_workers
from sfumato.engine.simulate import simulate
from tests.engine.far_people import Deadly
from tests.helpers import dp_round, linear

PLAN = Plan("stacked", 3, shards=3)

if __name__ == "__main__":
    folder, marker = sys.argv[1:]
    people = Population.from_import("tests.engine.far_people:people")
    round = dp_round(sample=Everyone(), local=Deadly(marker))
    settings = {"rounds": 3, "seed": 0, "plan": PLAN, "folder": folder, "resume": True}
    list(simulate(round, people, linear(), classification(3), **settings, cohort=gloo_workers()))
