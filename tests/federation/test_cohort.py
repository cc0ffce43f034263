"""The server's half between machines: bits of `simulate`, replies that cannot be used, rounds that are given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato import Plan
from sfumato.data.apart import DeclaredRecords
from sfumato.data.population import Population, Records
from sfumato.engine.keys import Keys, Randomness
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue
from sfumato.federation.cohort import Tally
from sfumato.federation.question import OK
from sfumato.federation.server import NobodyTakesPart, Served, prepared_for
from sfumato.federation.settings import Member, Settings, verifying_keys, write_registry
from sfumato.federation.wire import Letter, WireLost
from sfumato.ledger.ledger import Ledger
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request
from tests.federation.loopback import Answer, Loopback, PlainClient
from tests.federation.node.helpers import node_of

CLIENTS = 5
DATA = DataRequest(clients=CLIENTS, records_per_client=12)
OPTIONS: dict[str, Any] = {"sample": "poisson:0.7", "epochs": 1, "noise_multiplier": 1.0}


def asked(recipe: str = "dp-fedavg", rounds: int = 3, **options: Any) -> Request:
    settings = OPTIONS if recipe.startswith("dp-fed") else {}
    return Request(recipe, rounds=rounds, seed=7, delta=1e-5, data=DATA, options={**settings, **options})


def people_of(request: Request) -> Population:
    return prepare(replace(request, seed=None)).population


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    write_registry(
        tmp_path / "registry.toml", tuple(Member(f"node-{n}", f"key {n}", f"{n:064x}") for n in range(CLIENTS))
    )
    files = {"registry": "registry.toml", "certificate": "c", "key": "k", "authority": "a", "keys": "shared"}
    return Settings.of({**files, "input_shape": [1, 8, 8], "deadline": 1, "wait": 0.1}, tmp_path)


def served(request: Request, settings: Settings, wire: Loopback, folder: Path, **more: Any) -> Served:
    return Served(prepared_for(request, settings), wire, settings, folder, **more)


def everybody(request: Request) -> dict[int, Answer]:
    people = people_of(request)
    return {client: PlainClient(people, client) for client in range(CLIENTS)}


def final(request: Request, settings: Settings, answers: dict[int, Answer], folder: Path) -> torch.Tensor:
    *_, progress = served(request, settings, Loopback(answers), folder).run
    return progress.params


def here(request: Request, settings: Settings, missing: tuple[int, ...] = ()) -> torch.Tensor:
    """The same run in one process, in which some clients have nothing to say."""
    prepared, there = prepared_for(request, settings), people_of(request)

    def load(client: int) -> Any:
        train = there.client(client).train
        return Records(train.x[:0], train.y[:0]) if client in missing else train

    people = replace(prepared.population, load=load)
    facts = prepared.module, prepared.objective
    run = simulate(
        prepared.round,
        people,
        *facts,
        rounds=request.rounds,
        seed=7,
        plan=Plan(),
        description=prepared.request.description,
    )
    *_, progress = run
    return progress.params


@pytest.mark.parametrize("recipe", ["dp-fedavg", "dp-fedsam", "dp-fed-ls", "fed-smp"])
def test_the_parameters_of_simulate_to_the_bit(recipe: str, settings: Settings, tmp_path: Path) -> None:
    request = asked(recipe)
    assert torch.equal(final(request, settings, everybody(request), tmp_path / "run"), here(request, settings))


def test_the_order_of_replies_and_a_missing_one_do_not_matter(settings: Settings, tmp_path: Path) -> None:
    request = asked(sample="everyone")
    answers = everybody(request)
    del answers[2]
    assert torch.equal(final(request, settings, answers, tmp_path / "run"), here(request, settings, missing=(2,)))


def late(letter: Letter) -> Letter:
    raise TimeoutError


def changed(change: Callable[[Letter], Letter]) -> Callable[[Answer], Answer]:
    return lambda answer: lambda letter: change(answer(letter))


BROKEN: dict[str, tuple[str, Callable[[Answer], Answer]]] = {
    "late": ("late", lambda answer: late),
    "refused": ("refused.noise", lambda answer: lambda letter: Letter("refused.noise")),
    "no row": ("wrong-shape", changed(lambda reply: Letter(OK, reply.facts))),
    "long row": ("wrong-shape", changed(lambda reply: Letter(OK, reply.facts, {"row": torch.zeros(9999)}))),
    "whole numbers": (
        "wrong-shape",
        changed(lambda reply: Letter(OK, reply.facts, {"row": reply.tensors["row"].int()})),
    ),
    "NaN": ("not-finite", changed(lambda reply: Letter(OK, reply.facts, {"row": reply.tensors["row"] * torch.nan}))),
    "infinite": ("not-finite", changed(lambda reply: Letter(OK, reply.facts, {"row": reply.tensors["row"] / 0.0}))),
    "unclipped": (
        "too-long",
        changed(lambda reply: Letter(OK, reply.facts, {"row": torch.ones_like(reply.tensors["row"])})),
    ),
    "no weight": ("wrong-weight", changed(lambda reply: Letter(OK, {}, reply.tensors))),
    "negative weight": ("wrong-weight", changed(lambda reply: Letter(OK, {"weight": -1.0}, reply.tensors))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_reply_that_cannot_be_used_is_a_zero_row(name: str, settings: Settings, tmp_path: Path) -> None:
    code, breaks = BROKEN[name]
    request = asked(sample="everyone")
    answers = everybody(request)
    answers[2] = breaks(answers[2])
    tallies: list[str] = []
    run = served(request, settings, Loopback(answers), tmp_path / "run", tell=tallies.append).run
    *_, progress = run
    assert torch.equal(progress.params, here(request, settings, missing=(2,)))
    assert tallies == [f"round {number}: 4 of 5 replied, 1 {code}" for number in (1, 2, 3)]
    assert run.ledger.count == 3


@pytest.mark.parametrize("grain", [2.0**-60, 2.0**-1])
def test_a_row_between_the_steps_of_a_grid_is_in_no_exact_sum(grain: float, settings: Settings, tmp_path: Path) -> None:
    """What it would do to the sum is no whole number of steps, and is rounded by what the other rows are."""
    request = replace(asked(sample="everyone", rounds=1), secure=True)
    answers = everybody(request)
    grid = served(request, settings, Loopback(answers), tmp_path / "first").agreement.job.slots.sent.grid
    assert grid is not None
    between = torch.full((650,), grain * grid, dtype=torch.float64)
    answers[2] = changed(lambda reply: Letter(OK, reply.facts, {"row": between}))(answers[2])
    tallies: list[str] = []
    *_, progress = served(request, settings, Loopback(answers), tmp_path / "run", tell=tallies.append).run
    assert tallies == ["round 1: 4 of 5 replied, 1 off-grid"]
    assert torch.equal(progress.params, here(request, settings, missing=(2,)))


def test_nobody_replies_and_noise_is_released_all_the_same(settings: Settings, tmp_path: Path) -> None:
    request = asked()
    assert torch.equal(
        final(request, settings, {}, tmp_path / "run"), here(request, settings, missing=tuple(range(CLIENTS)))
    )


def test_shares_that_are_missing_give_the_round_up_and_count_it(settings: Settings, tmp_path: Path) -> None:
    request = replace(asked("dp-fedavg-shares", sample="everyone", smallest=4), secure=True)
    for gone, moves in (((), True), ((1,), True), ((1, 3), False)):
        answers = {client: answer for client, answer in everybody(request).items() if client not in gone}
        run = served(request, settings, Loopback(answers), tmp_path / f"run{len(gone)}").run
        *_, progress = run
        assert torch.equal(progress.params, run.start.params) != moves
        assert run.ledger.count == 3 and all(entry.settled for entry in run.ledger.entries())
        if not gone:  # whole numbers: the bits of a sum in the open
            assert torch.equal(progress.params, here(request, settings))


@pytest.mark.parametrize("kind", ["sum.keys", "sum.share", "sum.row", "sum.unmask"])
def test_a_secure_sum_goes_on_without_who_drops_out_in_any_phase(kind: str, settings: Settings, tmp_path: Path) -> None:
    request = replace(asked("dp-fedavg-shares", rounds=2, sample="everyone", smallest=4), secure=True)
    answers = everybody(request)
    whole = answers[2]
    answers[2] = lambda letter: late(letter) if letter.kind == kind else whole(letter)
    said: list[str] = []
    wire = Loopback(answers)
    run = served(request, settings, wire, tmp_path / "run", tell=said.append).run
    *_, progress = run
    there = kind == "sum.unmask"  # its row was in the sum by then
    assert said == ([] if there else [f"round {number}: 4 of 5 replied, 1 dropped-out" for number in (1, 2)])
    assert not torch.equal(progress.params, run.start.params)
    if there:
        assert torch.equal(progress.params, here(request, settings))
    rows = [letter.tensors for _, letter in wire.asked if "row" in letter.tensors]
    assert not rows


def test_a_client_that_gives_wrong_shares_spoils_rounds_and_not_the_run(settings: Settings, tmp_path: Path) -> None:
    request = replace(asked("dp-fedavg-shares", rounds=2, sample="everyone", smallest=4), secure=True)
    answers = everybody(request)
    whole = answers[0]

    def lies(letter: Letter) -> Letter:
        reply = whole(letter)
        if letter.kind == "sum.unmask":
            reply.tensors["content"][-1] ^= 1
        return reply

    said: list[str] = []
    run = served(request, settings, Loopback({**answers, 0: lies}), tmp_path / "run", tell=said.append).run
    *_, progress = run
    assert said == [f"round {number}: 0 of 5 replied, 1 given-up" for number in (1, 2)]
    assert torch.equal(progress.params, run.start.params) and run.ledger.count == 2


def test_the_guarantee_of_a_secure_sum_names_the_servers_power(settings: Settings, tmp_path: Path) -> None:
    request = replace(asked("dp-fedavg-shares", rounds=1, sample="everyone", smallest=4), secure=True)
    run = served(request, settings, Loopback(everybody(request)), tmp_path / "run").run
    list(run)
    said = " ".join(str(run.guarantee(server=True)).split())
    assert "follows the protocol of the secure sum" in said and "at most 1 of the 5 clients" in said
    assert "simulated" not in said
    prepared = prepared_for(request, settings)
    people = replace(prepared.population, load=people_of(request).load)
    alone = simulate(prepared.round, people, prepared.module, prepared.objective, rounds=1, seed=7, plan=Plan())
    assert "the secure sum is simulated" in str(alone.guarantee(1e-5, server=True))


def test_a_wire_that_is_lost_is_begun_anew(settings: Settings, tmp_path: Path) -> None:
    request = asked(sample="everyone")
    answers = everybody(request)
    first, lost = answers[1], [True]

    def breaks(letter: Letter) -> Letter:
        if lost and letter.kind == "train":
            lost.clear()
            raise WireLost("gone")
        return first(letter)

    wire = Loopback({**answers, 1: breaks})
    *_, progress = served(request, settings, wire, tmp_path / "run").run
    assert wire.restarts == 1 and progress.round == 3


def test_who_was_there_is_waited_for_when_the_wire_is_lost_before_the_first_round(
    settings: Settings, tmp_path: Path
) -> None:
    """Else a run goes on with nobody, and spends round after round on noise."""
    request = asked(sample="everyone")

    class Lost(Loopback):
        """Nodes come back a while after it was begun anew."""

        back = 0.0

        def online(self) -> set[int]:
            if self.restarts == 0 and self.asked:
                raise WireLost("gone")
            return super().online() if time.monotonic() >= self.back else set()

        def restart(self) -> None:
            super().restart()
            self.back = time.monotonic() + 0.3

    wire, said = Lost(everybody(request)), list[str]()
    started = served(request, settings, wire, tmp_path / "run", tell=said.append)
    started.check()
    *_, progress = started.run
    assert wire.restarts == 1 and progress.round == 3 and not [words for words in said if "offline" in words]


def test_what_is_sent_holds_nothing_of_the_servers(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, drawn, keys_of = asked(sample="everyone"), list[Keys](), Randomness.keys

    def noted(randomness: Randomness, number: int) -> Keys:
        drawn.append(keys_of(randomness, number))
        return drawn[-1]

    monkeypatch.setattr(Randomness, "keys", noted)
    wire = Loopback(everybody(request))
    run = served(request, replace(settings, keys="own"), wire, tmp_path / "run").run
    with pytest.raises(AssertionError):  # clients without keys of their own: these are for tests
        list(run)
    secrets = [key for keys in drawn for key in (keys.server, keys.clients, keys.channel, keys.lasting, keys.shared)]
    for _, letter in wire.asked:
        assert not any(secret.to_bytes().hex() in str(letter.facts) for secret in secrets)
        assert '"seed"' not in letter.facts["terms"] and "clients_key" not in letter.facts


def test_two_runs_of_one_seed_have_no_noise_in_common(settings: Settings, tmp_path: Path) -> None:
    """Else, where a client is away in one of them, the difference of their models is its row."""
    request, own = asked(sample="everyone", rounds=1), replace(settings, keys="own")
    first, second = (final(request, own, {}, tmp_path / name) for name in ("first", "second"))
    assert not torch.equal(first, second)


def test_it_does_not_begin_if_nobody_takes_part(settings: Settings, tmp_path: Path) -> None:
    request = asked()
    said: list[str] = []
    wire = Loopback({1: lambda letter: Letter("refused.recipe"), 2: late})
    ready = served(request, settings, wire, tmp_path / "run", tell=said.append)
    with pytest.raises(NobodyTakesPart, match="nothing is spent"):
        ready.check()
    assert said.pop(0) == "waiting for 5 nodes at 127.0.0.1:9092, for at most 0.1 s"
    assert said == ["node-0 (client 0): offline", "node-1 (client 1): refused.recipe", "node-2 (client 2): silent",
                    "node-3 (client 3): offline", "node-4 (client 4): offline"]  # fmt: skip
    ready.run.close()
    assert not (tmp_path / "run").exists()  # so that the same command can be given again


def test_a_run_that_has_begun_stays_if_nobody_takes_part(settings: Settings, tmp_path: Path) -> None:
    request = asked()
    ready = served(request, settings, Loopback(everybody(request)), tmp_path / "run")
    for _ in ready.run:
        break
    ready.run.close()
    again = served(request, settings, Loopback({}), tmp_path / "run", resume=True)
    with pytest.raises(NobodyTakesPart, match="0 are online"):
        again.check()
    assert Ledger(tmp_path / "run" / "ledger.sqlite", None).rounds == 1


def test_a_wire_that_is_lost_in_the_check_is_asked_again_once(settings: Settings, tmp_path: Path) -> None:
    class Lost(Loopback):
        def ask(self, letters: Mapping[int, Letter], deadline: float) -> Iterator[tuple[int, Letter]]:
            if self.restarts < times:
                raise WireLost("gone")
            yield from super().ask(letters, deadline)

    for times in (1, 2):
        wire = Lost(everybody(asked()))
        ready = served(asked(), settings, wire, tmp_path / f"run{times}")
        with pytest.raises(WireLost) if times == 2 else nullcontext():
            ready.check()
        assert wire.restarts == 1 and ready.run.ledger.count == 0
        ready.run.close()


def test_a_round_begun_again_is_another_attempt_and_both_count(settings: Settings, tmp_path: Path) -> None:
    request, own = asked(sample="everyone", rounds=2), replace(settings, keys="own")

    def refuses(letter: Letter) -> Letter:
        return Letter("refused.recipe")

    def dies(letter: Letter) -> Letter:
        raise KeyboardInterrupt

    first = served(request, own, Loopback({1: refuses, 3: dies}), tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        list(first.run)
    first.run.close()
    wire = Loopback({1: refuses, 3: refuses})
    again = served(
        first.run.prepared.request,
        replace(own, run=first.agreement.terms.run),
        wire,
        tmp_path / "run",
        resume=True,
    )
    list(again.run)
    assert [(entry.round, entry.attempt) for entry in again.run.ledger.entries()] == [(0, 0), (0, 1), (1, 1)]
    planned = [letter.facts["planned"] for _, letter in wire.asked]
    assert set(planned) == {3}  # one more than the terms say


def test_the_guarantee_says_what_it_assumes_of_nodes(settings: Settings, tmp_path: Path) -> None:
    run = served(asked(), settings, Loopback({}), tmp_path / "run").run
    list(run)
    said = " ".join(str(run.guarantee()).split())
    assert "nodes that are offline are counted in the population" in said
    assert "does not depend on one record or on other clients' data" in said
    assert "the time that a reply takes is not covered" in said and "sampling hides nothing from them" in said


def test_words_of_a_tally() -> None:
    from collections import Counter

    assert str(Tally(0, 5, 3, Counter({"late": 1, "failed": 1}))) == "round 1: 3 of 5 replied, 1 failed, 1 late"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": replace(DATA, clients=4)}, "names 5 nodes"),
        ({"diagnostics": True}, "for simulations"),
        ({"seed": None}, "for tests with a seed"),
        ({"data": replace(DATA, features="pca:5", public_records=200)}, "are learnt"),
        ({"recipe": "udp-fl", "options": {"shuffle": True, "sample": "everyone", "law": "laplace"}}, "shuffler"),
    ],
)
def test_what_cannot_be_between_machines(
    changes: dict[str, Any], words: str, settings: Settings, tmp_path: Path
) -> None:
    with pytest.raises(BadValue, match=words):
        served(replace(asked(), **changes), settings, Loopback({}), tmp_path / "run")


def active(settings: Settings) -> tuple[Settings, dict[int, Ed25519PrivateKey]]:
    """The settings of a federation that does not trust its server, and the keys that its clients sign with."""
    signing = {client: Ed25519PrivateKey.generate() for client in range(CLIENTS)}
    public = [signing[client].public_key().public_bytes_raw().hex() for client in range(CLIENTS)]
    write_registry(
        Path(settings.registry), tuple(Member(f"node-{n}", f"key {n}", line) for n, line in enumerate(public))
    )
    return replace(settings, power="active"), signing


def test_an_active_server_gets_the_sum_with_signed_keys_and_names_its_power(settings: Settings, tmp_path: Path) -> None:
    distrusting, signing = active(settings)
    request = replace(asked("dp-fedavg-shares", rounds=2, sample="everyone", smallest=4), secure=True)
    answers = everybody(request)
    for client, answer in answers.items():
        assert isinstance(answer, PlainClient)
        answer.sums = replace(answer.sums, signing=signing[client], verifying=verifying_keys(distrusting.members()))
    wire = Loopback(answers)
    run = served(request, distrusting, wire, tmp_path / "run").run
    *_, progress = run
    assert torch.equal(progress.params, here(request, distrusting))
    assert {letter.kind for _, letter in wire.asked} >= {"sum.confirm", "sum.unmask"}
    said = " ".join(str(run.guarantee(server=True)).split())
    assert "may break the protocol in any way" in said
    assert "in the ledger of each node" in said


def test_an_active_server_may_not_draw(settings: Settings, tmp_path: Path) -> None:
    distrusting, _ = active(settings)
    request = replace(asked("dp-fedavg-shares", sample="fixed:3"), secure=True)
    with pytest.raises(BadValue, match="asks whom it likes"):
        served(request, distrusting, Loopback({}), tmp_path / "run")


def test_a_secure_sum_needs_whole_numbers(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="adds whole numbers"):
        served(asked("dp-fedavg-shares", sample="everyone"), settings, Loopback({}), tmp_path / "run")


def test_shares_of_a_cohort_that_is_drawn_must_not_all_be_needed(settings: Settings, tmp_path: Path) -> None:
    """A round is given up if one of them is offline, so who is online is drawn far more often in those that are released."""
    request = replace(asked("dp-fedavg-shares", sample="fixed:3"), secure=True)
    with pytest.raises(BadValue, match="tells who was drawn"):
        served(request, settings, Loopback({}), tmp_path / "run")
    fewer = replace(request, options={**request.options, "smallest": 2})
    run = served(fewer, settings, Loopback({}), tmp_path / "fewer").run
    assert run.simulation.derivation.primary.world == run.simulation.derivation.primary.server


def test_nodes_are_asked_beforehand_also_where_a_round_shares_a_mask(settings: Settings, tmp_path: Path) -> None:
    request = asked("fed-smp")
    digits = DeclaredRecords("classification", 10, (1, 8, 8))
    nodes = {client: node_of(tmp_path / str(client), client, shared_keys=True, records=digits) for client in range(3)}
    served(request, settings, Loopback(nodes), tmp_path / "run").check()


def test_a_run_has_a_name_that_no_other_run_has(settings: Settings, tmp_path: Path) -> None:
    """The run.toml of a run that has ended names it: nodes would think that its rounds are begun again, and count none."""
    first = served(asked(), settings, Loopback({}), tmp_path / "run")
    list(first.run)
    again = Request.from_toml(tmp_path / "run" / "run.toml")
    with pytest.raises(BadValue, match="is the name of a run that has begun"):
        served(again, Settings.of(again.federation, tmp_path), Loopback({}), tmp_path / "again")


def test_nodes_are_told_of_as_many_rounds_as_a_run_had(settings: Settings, tmp_path: Path) -> None:
    wire = Loopback({0: lambda letter: Letter(OK)})
    run = served(asked(), settings, wire, tmp_path / "run")
    list(run.run)
    run.end()
    assert [letter.facts["planned"] for _, letter in wire.asked if letter.kind == "end"] == [3]
