"""What a shell or a notebook shows of our objects: one line, or a small card in which everything is escaped."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser

import pytest
import torch

import sfumato
from sfumato import AddNoise, Clip, Gaussian, Mean, Poisson, Population, Round, Sgd, classification, simulate
from sfumato.data.records import Records
from sfumato.engine.simulation import Progress
from sfumato.guarantee import told_once
from sfumato.run.prepare import prepare
from sfumato.run.request import Request


@pytest.fixture(scope="module")
def progress() -> Progress:
    clients = [(x, (x[:, 0] > 0).long()) for x in torch.ones(20, 5, 4)]
    server = (AddNoise(Gaussian(2.0)),)
    round = Round(Poisson(0.5), Sgd(0.1, epochs=1), Mean(over=10), client=(Clip(1.0),), server=server)
    people = Population.from_list(clients, name="<b>mine</b>")
    return list(simulate(round, people, torch.nn.Linear(4, 2), classification(2), rounds=2, budget=(9.0, 1e-3)))[-1]


def test_reprs_are_one_short_line(progress: Progress) -> None:
    run, prepared = progress.run, prepare(Request(rounds=2, epsilon=2.0))
    things = (progress, run, run.population, run.derivation, run.derivation.primary, run.job.slots.round, prepared)
    for thing in (*things, prepared.population, run.population.client(0).train, progress.guarantee(1e-3)):
        assert "\n" not in repr(thing) and len(repr(thing)) <= 600, repr(thing)
    assert repr(progress).startswith("Progress(round 2 of 2, 10 parameters")
    assert repr(run.population.client(0).train) == "Records(5 records, x 4 float32, y int64)"
    assert repr(Records(torch.ones(2, 1, 8, 8), torch.ones(2, 3))) == "Records(2 records, x 1x8x8 float32, y 3 float32)"
    assert repr(prepared) == "Prepared(dp-fedavg, Population('digits/iid/200x7', 200 clients), Sequential, 2 rounds)"
    assert repr(run.job.slots.round).startswith("Round(sample=Poisson(rate=0.5), local=Sgd(lr=0.1, epochs=1)")


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)
        assert all(name == "style" and "url" not in (value or "") for name, value in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_cards_are_whole_escaped_and_small(progress: Progress) -> None:
    spent = progress.guarantee(1e-3)
    for given, card in ((spent, spent._repr_html_()), (progress.guarantee(), progress._repr_html_())):
        tags = _Tags(card)
        assert not tags.open and set(tags.seen) <= {"div", "strong", "details", "summary", "dl", "dt", "dd", "ul", "li"}
        assert card.index("<strong>") < card.index("<details>") < card.index("<dl") < card.index("assumptions")
        assert len(card) < 3000 and "#" not in card.replace("&#x27;", "") and escape(given.headline) in card
    told = sfumato.Guarantee(
        None, 1e-3, spent.unit, spent.relation, "<script>", "", unproven="<b>why</b>"
    )._repr_html_()
    assert "<script>" not in told and "<b>" not in told and "&lt;b&gt;why" in told


def test_progress_without_a_budget_shows_epsilon_at_the_default_delta(progress: Progress) -> None:
    clients = [(torch.ones(3, 4), torch.zeros(3).long())] * 4
    round = progress.run.job.slots.round
    (one,) = simulate(round, Population.from_list(clients), torch.nn.Linear(4, 2), classification(2), rounds=1)
    assert escape(one.guarantee(1e-5).headline) in one._repr_html_()


def test_two_views_become_one_only_if_all_else_is_the_same(progress: Progress) -> None:
    world = progress.guarantee(1e-3)
    server = progress.guarantee(1e-3, server=True)
    assert told_once(world, server) == (world, server)
    from dataclasses import replace

    (both,) = told_once(world, replace(world, view="the server"))
    assert both.view == f"{world.view}, the server included" and both.headline.endswith(both.observer)
    assert len(told_once(world, replace(world, view="the server", epsilon=world.epsilon + 1))) == 2
