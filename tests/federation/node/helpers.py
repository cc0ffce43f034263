"""A federation small enough for a test: terms, owners' files, nodes, and a server's half of rounds in one loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sfumato import recipes
from sfumato.data.apart import DeclaredRecords
from sfumato.data.population import Population, PublicData
from sfumato.federation.node.answer import Node
from sfumato.federation.node.policy import Policy
from sfumato.federation.question import TRAIN, Question
from sfumato.federation.terms import Agreement, Terms
from sfumato.federation.wire import Letter
from sfumato.key import Key
from sfumato.ledger.ledger import Budget, Ledger
from sfumato.round import Round
from sfumato.run.read_round import round_text
from tests.helpers import made_up_population

SIZES = [5, 8, 6, 12]
PEOPLE = made_up_population(SIZES)
RECORDS = DeclaredRecords("classification", 3, (6,))
NO_LIMIT = Budget(float("inf"), 0.5)


def terms_of(
    recipe: str = "dp-fedavg", *, round: Round | None = None, public: PublicData | None = None, **changed: Any
) -> Terms:
    """Terms of a run of four clients on records of six numbers and three classes."""
    options = changed.pop("options", {})
    made = round or recipes.build(recipe, len(SIZES), options, public)
    said = round_text(made, public)
    assert said is not None
    plain = Terms(
        run="run",
        recipe=recipe,
        round=said,
        model="logistic",
        model_seed=0,
        task="classification",
        outputs=3,
        input_shape=(6,),
        input_type="float32",
        target_shape=(),
        target_type="int64",
        clients=len(SIZES),
        rounds=3,
        delta=1e-5,
        public="" if public is None else public.name,
        options=options,
    )
    return replace(plain, **changed)


def policy_of(folder: Path, client: int = 1, **changed: Any) -> Policy:
    """A policy that allows anything that is private."""
    return replace(
        Policy(
            client=client,
            data=str(folder / "records.pt"),
            name="set",
            folder=folder,
            recipes=("any",),
            promise="suffices",
            budgets={"set": NO_LIMIT},
            records=RECORDS,
        ),
        **changed,
    )


def store_records(folder: Path, client: int = 1, people: Population = PEOPLE) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = people.client(client).train
    torch.save({"x": records.x, "y": records.y}, folder / "records.pt")


def node_of(folder: Path, client: int = 1, *, data: Any = None, log: list[str] | None = None, **changed: Any) -> Node:
    """A node with one client of the made-up population in a file."""
    if data is None:
        store_records(folder, client)
    lines = [] if log is None else log
    return Node(policy_of(folder, client, **changed), data=data, log=lines.append)


def question_of(
    terms: Terms,
    client: int = 1,
    number: int = 0,
    attempt: int = 0,
    planned: int | None = None,
    public: PublicData | None = None,
    **changed: Any,
) -> Question:
    """What a server would ask, with the first parameters."""
    agreement = Agreement.of(terms, public)
    slots = agreement.job.slots
    params = slots.layout.row(agreement.job.module)
    state, key = slots.round.optimizer.start(params), Key.from_seed(7).child("opening", round=number)
    opening = slots.open(number, key, train=lambda data: torch.zeros(slots.length), state=state)
    planned = terms.rounds if planned is None else planned
    question = Question(
        terms=terms.text,
        hash=agreement.hash,
        client=client,
        attempt=attempt,
        since=0,
        planned=planned,
        params=params,
        opening=opening,
        public=public,
    )
    return replace(question, **changed)


def letter_of(terms: Terms, kind: str = TRAIN, **changed: Any) -> Letter:
    """A question as it arrives."""
    return Letter.from_bytes(question_of(terms, **changed).letter(kind).to_bytes())


def ledger_of(folder: Path, name: str = "set") -> Ledger:
    return Ledger(folder / name / "ledger.sqlite", None)
