"""Everything killed everywhere, one after another: what the tests have no time for."""

from __future__ import annotations

import signal
from dataclasses import replace

from tests.federation.site import Site, asked
from tests.federation.soak import LAST_PLACES, SERVER_PLACES, check_spent, check_whole

SUM_PHASES = ("sum.keys", "sum.share", "sum.row", "sum.unmask")


def matrix(site: Site) -> None:
    """Raises where something is counted less than it cost, is not whole, or does not go on."""
    site.nodes()
    _server(site)
    _nodes(site)
    _sums(site)


def _server(site: Site) -> None:
    """The server and SuperLink, at each place of a run."""
    for how in ("kill", "superlink"):
        run = f"server-{how}"
        request = site.request(asked(rounds=8, seed=None, sample="everyone"))
        for place in (*SERVER_PLACES, *LAST_PLACES):
            site.order("server", f"{place} {how}")
            begun = (site.folder / run / "run.toml").exists()
            server = site.server(run, None if begun else request)
            status = server.wait(240.0)
            print(f"{how} at {place}: status {status}, {len(site.entries(run))} reservations", flush=True)
            assert status in ((-signal.SIGKILL, 0) if how == "kill" else (0, 2)), server.words
            assert "Traceback" not in server.words, server.words
            check_whole(site, run)
            if status == 0:
                request = replace(request, rounds=request.rounds + 2)
                run, begun = f"{run}-", False
        site.order("server")
        assert site.server(run, None if (site.folder / run).exists() else request).wait(240.0) == 0
        check_spent(site, run)
        (site.folder / "noise.log").unlink(missing_ok=True)


def _nodes(site: Site) -> None:
    """A node, at each letter that it is asked, before and after it has an answer."""
    options = {"sample": "everyone", "records": 12, "batch": "fixed:4", "steps": 2}
    for kind in ("check", "train", "train.after", "released", "released.after", "end"):
        site.order("node-2", f"{kind} kill")
        server = site.server(f"node-{kind}", site.request(asked("prifedsync", rounds=2, seed=None, **options)))
        assert site.at(1).wait(240.0) == -signal.SIGKILL
        site.node(1)
        assert server.wait(240.0) == 0, server.words
        print(f"node killed at {kind}: the run went on", flush=True)
        check_spent(site, f"node-{kind}")
        (site.folder / "noise.log").unlink(missing_ok=True)


def _sums(site: Site) -> None:
    """A secure sum, left in each of its phases by a node and by the server."""
    request = replace(asked("dp-fedavg-shares", seed=None, rounds=2, sample="everyone", smallest=2), secure=True)
    for kind in SUM_PHASES:
        run = f"sum-{kind}"
        site.order("server", f"asked.{kind} kill")
        assert site.server(run, site.request(request)).wait(240.0) == -signal.SIGKILL
        site.order("node-2", f"{kind} kill")
        server = site.server(run)
        assert site.at(1).wait(240.0) == -signal.SIGKILL
        site.node(1)
        assert server.wait(240.0) == 0, server.words
        entries, _ = check_spent(site, run)
        assert entries >= 3, "the round that the server left counts"
        print(f"secure sum left at {kind}: the run went on", flush=True)
        (site.folder / "noise.log").unlink(missing_ok=True)
