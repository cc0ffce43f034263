"""Everything killed everywhere, one after another: what the tests have no time for."""

from __future__ import annotations

import signal
from dataclasses import replace

from tests.federation.site import Host, Site, asked
from tests.federation.soak import LAST_PLACES, SERVER_PLACES, check_spent, check_whole

_PATIENCE = 600.0  # seconds
SUM_PHASES = ("sum.keys", "sum.share", "sum.row", "sum.unmask")


def matrix(site: Site) -> None:
    """Raises where something is counted less than it cost, is not whole, or does not go on."""
    site.nodes()
    _server(site)
    _nodes(site)
    _sums(site)


def _server(site: Site) -> None:
    """The server killed at each place of a run, which goes on each time; SuperLink killed at each place of one that never ends."""
    request = site.request(asked(rounds=len(SERVER_PLACES), seed=None, sample="everyone"))
    places = (*SERVER_PLACES, *LAST_PLACES)
    for nth, place in enumerate(places):
        site.order("server", f"{place} kill")
        server = site.server("killed", None if nth else request)
        assert server.wait(_PATIENCE) == -signal.SIGKILL, f"{place}: {server.words}"
        check_whole(site, "killed")
        entries, drawn = check_spent(site, "killed")
        print(f"server killed at {place}: {entries} reservations, {drawn} draws", flush=True)
    _finished(site, "killed", site.server("killed"))
    site.order("server", *(f"{place} superlink" for place in places))
    _finished(site, "links", site.server("links", request))
    assert site.orders("server") == []
    print("SuperLink killed at each of them: the run went on", flush=True)


def _finished(site: Site, run: str, server: Host) -> None:
    """It ends well, and nothing is counted less than it cost."""
    assert server.wait(_PATIENCE) == 0, server.words
    assert "Traceback" not in server.words, server.words
    check_whole(site, run)
    check_spent(site, run)
    (site.folder / "noise.log").unlink(missing_ok=True)


def _nodes(site: Site) -> None:
    """A node, at each letter that it is asked, before and after it has an answer."""
    options = {"sample": "everyone", "records": 12, "batch": "fixed:4", "steps": 2}
    for kind in ("check", "train", "train.after", "released", "released.after", "end"):
        site.order("node-2", f"{kind} kill")
        server = site.server(f"node-{kind}", site.request(asked("prifedsync", rounds=2, seed=None, **options)))
        assert site.at(1).wait(_PATIENCE) == -signal.SIGKILL
        site.node(1)
        _finished(site, f"node-{kind}", server)
        print(f"node killed at {kind}: the run went on", flush=True)


def _sums(site: Site) -> None:
    """A secure sum, left in each of its phases by a node and by the server."""
    request = replace(asked("dp-fedavg-shares", seed=None, rounds=2, sample="everyone", smallest=2), secure=True)
    for kind in SUM_PHASES:
        run = f"sum-{kind}"
        site.order("server", f"asked.{kind} kill")
        assert site.server(run, site.request(request)).wait(_PATIENCE) == -signal.SIGKILL
        site.order("node-2", f"{kind} kill")
        server = site.server(run)
        assert site.at(1).wait(_PATIENCE) == -signal.SIGKILL
        site.node(1)
        _finished(site, run, server)
        assert len(site.entries(run)) == 3, "the round that the server left counts"
        print(f"secure sum left at {kind}: the run went on", flush=True)
