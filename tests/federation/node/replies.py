"""Nodes whose records differ in one, and what a server sees of their replies: nothing that differs but numbers under noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.data.apart import DeclaredRecords
from sfumato.data.population import Population, PublicData, Records
from sfumato.federation.node.answer import Node
from sfumato.federation.terms import Terms
from sfumato.federation.wire import Letter
from sfumato.key import Key
from tests.federation.node.helpers import policy_of, question_of, terms_of
from tests.helpers import made_up_population

Pair = tuple[Tensor, Tensor]
COUNT, VICTIM = 20, 3
PUBLIC = PublicData("asked", Records(*made_up_population([9], seed=5).client(0).train))
VOTES = {"queries": 6, "classes": 3, "stddev": 1.0}
STEPS = {"records": COUNT, "batch": "poisson:0.5", "steps": 2}
WORDS = "tests.federation.node.replies:words"
TOKENS: dict[str, Any] = {
    "records": DeclaredRecords("next-character", 4, (5,), "int64"),
    "models": ("library", WORDS),
}


def words() -> nn.Module:
    """A model that raises on a character that it does not know; the gradients of a whole batch are computed at once."""
    return nn.Sequential(nn.Embedding(4, 3), nn.Flatten(), nn.Linear(15, 4))


def changed(x: Tensor | None = None, y: float | None = None) -> Callable[[Pair], Pair]:
    """One record with other inputs or another target."""

    def change(pair: Pair) -> Pair:
        inputs, targets = pair[0].double(), pair[1].double() if y is not None and y % 1 else pair[1].clone()
        if x is not None:
            inputs[VICTIM] = x
        if y is not None:
            targets[VICTIM] = y
        return inputs, targets

    return change


def without(pair: Pair) -> Pair:
    """One record fewer."""
    kept = torch.arange(len(pair[0])) != VICTIM
    return pair[0][kept], pair[1][kept]


ODD: dict[str, Callable[[Pair], Pair]] = {
    "label above": changed(y=9),
    "label below": changed(y=-1),
    "label huge": changed(y=2**62),
    "label between": changed(y=0.5),
    "nan": changed(x=torch.tensor(torch.nan)),
    "infinite": changed(x=torch.tensor(torch.inf)),
    "1e300": changed(x=torch.tensor(1e300, dtype=torch.float64)),
    "3e38": changed(x=torch.tensor(3e38)),
    "zero": changed(x=torch.tensor(0.0), y=0),
    "another": changed(x=torch.tensor(2.0), y=1),
    "missing": without,
}


def records(count: int = COUNT) -> Pair:
    """Records of six numbers and three classes."""
    draws = Key.from_seed(1)
    return draws.child("x").normal(count, 6).float(), torch.arange(count) % 3


def texts(count: int = COUNT, odd: int | None = None, victim: int = 10) -> Pair:
    """Texts of four characters, which no check at loading knows; with `odd`, one has a character that the model has none for.

    The first four records are those by which the way to gradients is chosen, which may raise too.
    """
    x = (torch.arange(count * 5) % 4).reshape(count, 5)
    if odd is not None:
        x[victim, 2] = odd
    return x, torch.ones(count, dtype=torch.int64)


def node_with(folder: Path, pair: Pair, log: list[str] | None = None, client: int = 1, **allowed: Any) -> Node:
    """A node of these records that allows anything."""
    policy = policy_of(folder, client, **{"unproven": True, "nonprivate": True, "shared_keys": True, **allowed})
    lines = [] if log is None else log
    return Node(policy, data=lambda: Population("set", 1, lambda number: pair, is_fixed=True), log=lines.append)


def seen(reply: Letter) -> object:
    """All that a server sees of a reply but its numbers: kind, facts, size, and what each tensor is."""
    tensors = {
        name: (tuple(value.shape), value.dtype, bool(value.isfinite().all())) for name, value in reply.tensors.items()
    }
    return reply.kind, reply.facts, tensors, len(reply.to_bytes())


def of_recipe(recipe: str, options: dict[str, Any] | None = None, **more: Any) -> tuple[Terms, PublicData | None]:
    """Terms of a recipe on the records above, and the public records that it needs."""
    public = PUBLIC if recipe in ("pate-fl", "knn-fl") else None
    usual: dict[str, Any] = {"pate-fl": VOTES, "knn-fl": VOTES}.get(recipe, {})
    if recipe == "dp-fedavg-shares":
        usual = {"sample": "everyone", "relation": "replace", "smallest": 3}
    if recipe in ("prifedsync", "udp-fl", "dp-fedsgd"):
        usual = {name: value for name, value in STEPS.items() if recipe != "dp-fedsgd" or name != "steps"}
    return terms_of(recipe, public=public, options={**usual, **(options or {})}, **more), public


def of_texts(recipe: str, options: dict[str, Any] | None = None, **more: Any) -> Terms:
    """Terms of a recipe on the texts above."""
    shapes: dict[str, Any] = {"input_shape": (5,), "input_type": "int64", "outputs": 4}
    return of_recipe(recipe, options, model=WORDS, task="next-character", **shapes, **more)[0]


class Swapped:
    """One node whose records are swapped between requests. Each request is another one, so none gets a stored reply."""

    def __init__(
        self, folder: Path, terms: Terms, public: PublicData | None = None, *, shared: bool = False, **allowed: Any
    ) -> None:
        self.log: list[str] = []
        self.pair = records()
        policy = policy_of(folder, **{"unproven": True, "nonprivate": True, "shared_keys": shared, **allowed})
        self.node = Node(policy, data=lambda: Population("set", 1, lambda number: self.pair), log=self.log.append)
        keys = (Key.from_seed(2), Key.from_seed(3)) if shared else None
        self.question = question_of(terms, public=public, shared_keys=keys)
        self.asked = 0

    def reply(self, pair: Pair, kind: str = "train") -> Letter:
        """The reply of the node with these records. Where keys are shared, it draws the same noise each time."""
        self.pair, self.asked = pair, self.asked + 1
        key = self.question.opening.key.child("asked", number=self.asked)
        question = replace(self.question, opening=replace(self.question.opening, key=key))
        return self.node(Letter.from_bytes(question.letter(kind).to_bytes()))


def check_replies(
    folder: Path,
    terms: Terms,
    pairs: dict[str, Pair],
    public: PublicData | None = None,
    change: Callable[[Tensor], Tensor] = lambda params: params,
    **allowed: Any,
) -> None:
    """The replies to one request are alike, whichever of these records a node has and whatever the server's parameters are."""
    node, first = Swapped(folder, terms, public, **allowed), dict[str, object]()
    node.question = replace(node.question, params=change(node.question.params))
    for name, pair in pairs.items():
        for kind in ("train", "check", "released", "end") if len(first) < 4 or name in ("nan", "above") else ("train",):
            reply = seen(node.reply(pair, kind))
            assert reply == first.setdefault(kind, reply), (name, kind, node.log)
    assert "train: answered round 1 of 'run'" in node.log


def check_distances(
    folder: Path, terms: Terms, pairs: dict[str, Pair], bound: float, public: PublicData | None = None, **allowed: Any
) -> None:
    """With the same noise, one record moves a row by no more than the bound."""
    node = Swapped(folder, replace(terms, keys="shared"), public, shared=True, **allowed)
    rows = {name: node.reply(pair).tensors["row"].double() for name, pair in pairs.items()}
    first = next(iter(rows.values()))
    for name, row in rows.items():
        assert float((row - first).norm()) <= bound * (1 + 1e-5), name
    assert any(not torch.equal(row, first) for row in rows.values())
