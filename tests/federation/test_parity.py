"""Between processes, over TLS and with node keys: the bits of `simulate` where keys are shared, else its events and guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="sfumato[flower] is not installed")
if not Path("/proc/self/environ").exists():
    pytest.skip("looks for processes in /proc", allow_module_level=True)

from sfumato.engine.simulation import Progress
from sfumato.federation.flower.server import FlowerWire
from sfumato.federation.flower.settings import ServerSettings
from sfumato.federation.server import Served, prepared_for
from sfumato.run.request import Request
from tests.federation.network import all_online
from tests.federation.site import Site, asked, here_of, opened, people_of

pytestmark = pytest.mark.processes

RECIPES: dict[str, dict[str, Any]] = {
    "dp-fedavg": {},
    "dp-fedsam": {},
    "prifedsync": {"sample": "fixed:2", "records": 12, "batch": "fixed:4", "steps": 3},
    "pate-fl": {"queries": 20, "noise_multiplier": 1.0},
}


@dataclass
class Bench:
    """A server in this process, and nodes in processes of their own, for several runs one after another."""

    site: Site
    wire: FlowerWire

    def there(self, request: Request, name: str, keys: str) -> tuple[Served, Progress]:
        request = self.site.request(request, keys=keys)
        settings = self.site.settings(request)
        self.site.give(people_of(request))
        said: list[str] = []
        served = Served(prepared_for(request, settings), self.wire, settings, self.site.folder / name, tell=said.append)
        served.check()
        *_, progress = served.run
        served.end()
        waiting, ended = said  # nobody refused, was late or was lost
        assert waiting.startswith("waiting for 3 nodes") and ended == "3 of 3 nodes have the final model"
        return served, progress


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with opened(tmp_path_factory.mktemp("parity")) as site:
        site.nodes(puppet=False)
        settings = site.settings(site.request(asked()))
        known = tuple(member.key for member in settings.members())
        files = Path(settings.certificate), Path(settings.key), Path(settings.authority)
        with FlowerWire(ServerSettings(site.folder / "superlink", known, *files, port=site.port)) as wire:
            all_online(wire, range(site.clients))
            yield Bench(site, wire)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_parameters_of_simulate_to_the_bit(bench: Bench, recipe: str) -> None:
    request = asked(recipe, **RECIPES[recipe])
    served, there = bench.there(request, f"{recipe}-shared", "shared")
    _, here = here_of(bench.site, request, "shared")
    assert torch.equal(there.params, here.params)
    assert not torch.equal(there.params, served.run.start.params)
    assert served.run.ledger.count == request.rounds
    for number in range(bench.site.clients):  # what clients keep is with them, and nowhere else
        kept, expected = bench.site.memory(number, served.agreement.terms.run), here.memory.get(number, {})
        assert kept.keys() == expected.keys() and all(torch.equal(kept[name], expected[name]) for name in kept)
    assert bool(here.memory) == (recipe == "prifedsync") and there.memory == {}
    served.run.close()


@pytest.mark.parametrize("recipe", RECIPES)
def test_with_secrets_of_their_own_the_same_events_and_guarantee(bench: Bench, recipe: str) -> None:
    request = asked(recipe, seed=None, **RECIPES[recipe])
    served, there = bench.there(request, f"{recipe}-own", "own")
    run, here = here_of(bench.site, request, "own")
    assert [entry.costs for entry in served.run.ledger.entries()] == [entry.costs for entry in run.ledger.entries()]
    for server in (False, True):
        one, other = served.run.guarantee(server=server), run.guarantee(1e-5, server=server)
        assert (one.epsilon, one.delta, one.unit, one.relation) == (
            other.epsilon,
            other.delta,
            other.unit,
            other.relation,
        )
    assert served.run.derivation.primary == run.derivation.primary
    served.run.close()
    assert not torch.equal(there.params, here.params)


def test_the_bits_of_a_secure_sum_are_those_of_a_sum_in_the_open(bench: Bench) -> None:
    request = replace(asked("dp-fedavg-shares", rounds=2, sample="everyone", smallest=3), secure=True)
    served, there = bench.there(request, "shares", "shared")
    _, here = here_of(bench.site, request, "shared")
    assert torch.equal(there.params, here.params)
    assert "simulated" not in str(served.run.guarantee(server=True))
    served.run.close()
