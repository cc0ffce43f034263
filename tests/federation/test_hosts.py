"""The same between hosts that are hosts: namespaces with addresses of their own, links that are cut, and a slow one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("flwr", reason="sfumato[flower] is not installed")
if not Path("/proc/self/environ").exists():
    pytest.skip("looks for processes in /proc", allow_module_level=True)

from sfumato.federation.certificates import Authority, make_server_certificate
from sfumato.run.request import Request
from tests.federation.namespaces import Hosts, hosts
from tests.federation.network import until
from tests.federation.site import ROOT, Site, asked, here_of, opened, rounds_of
from tests.federation.test_faults import check_run, finished, tallies
from tests.patience import PATIENCE

pytestmark = pytest.mark.processes

DEADLINE = 8.0


@pytest.fixture(scope="module")
def network() -> Iterator[Hosts]:
    with hosts("server", "node-1", "node-2", "node-3") as made:
        yield made


@pytest.fixture(scope="module")
def site(network: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    told = {"deadline": DEADLINE, "wait": 60.0}
    facts = {"address": network.address("server"), "enter": network.enter, "federation": told}
    with opened(tmp_path_factory.mktemp("hosts"), **facts) as site, _slow_link(site, network, "node-3"):
        site.nodes()
        yield site


def _slow_link(site: Site, network: Hosts, name: str) -> subprocess.Popen[bytes]:
    """A node that reaches the server over 200 kB/s, each connection a tenth of a second late."""
    here, there = "127.0.0.1", network.address("server")
    made = site.folder / "made"
    authority = Authority(made / "authority" / "authority.pem", made / "authority" / "authority.key")
    make_server_certificate(made / "server", authority, [there, here])  # the node takes the proxy for the server
    path = made / name / "node.toml"
    path.write_text(path.read_text().replace(f'"{there}:{site.port}"', f'"{here}:{site.port}"'))
    words = [here, str(site.port), there, str(site.port), "2e5", "0.1"]
    command = [*network.enter(name), sys.executable, "-m", "tests.federation.slow", *words]
    return _Ended(command, cwd=ROOT)


class _Ended(subprocess.Popen[bytes]):
    """A process that ends with its block."""

    def __exit__(self, *how: object) -> None:
        self.terminate()
        self.wait()


def test_each_host_has_its_own_address_and_no_way_out(network: Hosts) -> None:
    for name in network.names:
        told = [*network.enter(name), "ip", "-4", "-brief", "address", "show", "dev", "eth0"]
        assert network.address(name) in subprocess.run(told, capture_output=True, text=True, check=True).stdout
        routes = [*network.enter(name), "ip", "route"]
        assert "default" not in subprocess.run(routes, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("recipe", ["dp-fedavg", "prifedsync"])
def test_the_parameters_of_simulate_to_the_bit(site: Site, recipe: str) -> None:
    own = {"sample": "fixed:2", "records": 12, "batch": "fixed:4", "steps": 3} if recipe == "prifedsync" else {}
    request = asked(recipe, **own)
    words = finished(site.server(recipe, site.request(request, keys="shared", deadline=60.0, wait=180.0)))
    assert tallies(words) == {}, words  # everybody replied in time
    _, here = here_of(site, request, "shared")
    found, expected = load_file(site.folder / recipe / "params.safetensors"), here.module.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)
    name = Request.from_toml(site.folder / recipe / "run.toml").federation["run"]
    for number in range(site.clients):
        kept, held = site.memory(number, name), here.memory.get(number, {})
        assert kept.keys() == held.keys() and all(torch.equal(kept[name], held[name]) for name in kept)
    check_run(site, recipe, request.rounds)


def test_a_link_is_cut_in_the_middle_of_a_round_and_mended(site: Site, network: Hosts) -> None:
    site.order("node-2", "train wait 2")
    server = site.server("cut", site.request(asked(seed=None, rounds=300, sample="everyone")))
    until(lambda: not site.orders("node-2") or not server.alive, PATIENCE)
    network.cut("node-2")  # it trains now, and its row will not arrive
    until(lambda: rounds_of(site, "cut") >= 2 or not server.alive, PATIENCE)
    said = tallies(server.words)
    assert "2 of 3 replied" in said[1], server.words
    network.mend("node-2")
    before = rounds_of(site, "cut")
    until(lambda: rounds_of(site, "cut") > max(tallies(server.words)) + 2 or not server.alive, PATIENCE)
    assert server.alive and rounds_of(site, "cut") > before  # rounds of which nothing is said: all replied
    server.signal(2)
    assert server.wait() == 130
    done = rounds_of(site, "cut")
    finished(site.server("cut", rounds=done + 1))
    check_run(site, "cut", done + 1)


def test_the_server_is_cut_off_and_training_goes_on(site: Site, network: Hosts) -> None:
    request = site.request(asked(seed=None, rounds=3, sample="everyone"))
    site.order("server", "asked.train wait 0.1")
    server = site.server("alone", request)
    until(lambda: not site.orders("server") or not server.alive, PATIENCE)
    network.cut("server")
    until(lambda: bool(tallies(server.words)) or not server.alive, PATIENCE)
    network.mend("server")
    finished(server)
    check_run(site, "alone", 3)
