"""Settings chosen on public data that stand in for the clients': free, since nothing of theirs is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sfumato.calibration import with_noise
from sfumato.data.load import NAMES, share_records
from sfumato.data.load import load as load_data
from sfumato.engine.simulate import simulate
from sfumato.errors import BadValue, nearest
from sfumato.local.dp_sgd import DpSgd
from sfumato.objective import evaluate
from sfumato.run.prepare import Prepared, prepare
from sfumato.run.request import Request
from sfumato.tuning.candidates import Settings, noise_of, with_settings


@dataclass(frozen=True)
class Tried:
    """Settings, and what they reached on the proxy's own test split."""

    settings: Settings
    score: float


def choose_on_proxy(
    target: Prepared, proxy: str, tried: Sequence[Settings], tell: Callable[[Tried], object] = lambda one: None
) -> tuple[Tried, ...]:
    """Every setting, tried on the proxy shared out as the target is, best first; `tell` hears of each as it is done.

    The noise beside those who are drawn of the proxy is as large as it will be beside the target's: where these are fewer there
    is less of it. Runs have a public seed. The target's test split is not read.
    """
    stand_in = prepare(_request(target, proxy), open_to_all=True)
    if stand_in.input_shape != target.input_shape:
        raise BadValue(
            f"--proxy {proxy}: its records have the shape {stand_in.input_shape}, the clients' {target.input_shape}. Give a proxy "
            "of the same shape, or bring both to one, e.g. with --features resize:16."
        )
    assert stand_in.test is not None, "data sets known by name have test splits"
    found: list[Tried] = []
    for settings in tried:
        wanted = with_settings(target, settings)
        own = with_settings(stand_in, settings)
        round = with_noise(own.round, noise_of(wanted) * _drawn(own) / _drawn(wanted))
        given, request = (own.population, own.module, own.objective), own.request
        *_, last = simulate(round, *given, rounds=request.rounds, seed=0, device=request.device)
        score = evaluate(last.module, stand_in.test.records, own.objective)[own.objective.primary]
        found.append(Tried(settings, score))
        tell(found[-1])
    return tuple(sorted(found, key=lambda one: -one.score))


def _drawn(prepared: Prepared) -> float:
    """How many clients a round asks; how many records it takes, where one holder has all."""
    local = prepared.round.local
    if prepared.request.central and isinstance(local, DpSgd):
        return local.batch.expected(local.records)
    return prepared.round.sample.expected(prepared.population.size)


def _request(target: Prepared, proxy: str) -> Request:
    """The target's request with the proxy's records, as many clients as these are enough for, and the target's outputs."""
    request, data = target.request, target.request.data
    if proxy not in NAMES:
        raise BadValue(f"--proxy {proxy}: there is no such data set. {nearest(proxy, NAMES)}")
    if share_records(proxy, data.name):
        raise BadValue(
            f"--proxy {proxy}: clients of {data.name} hold the same records, so choosing on them is not free. Use --pay."
        )
    stand_in = load_data(proxy, data.folder or None)
    if stand_in.task != data.task or stand_in.classes > target.outputs:
        raise BadValue(
            f"--proxy {proxy} has {stand_in.classes} classes for {stand_in.task}; the clients' records have {target.outputs} for "
            f"{data.task}. Give a proxy of the same task with no more classes."
        )
    public = target.counts.get("train", stand_in.pool.count)  # of a user's own data nothing is counted
    share = data.records_per_client or max(1, public // data.clients)
    clients = 1 if request.central else min(data.clients, stand_in.pool.count // share)
    if clients < min(2, data.clients):
        raise BadValue(
            f"--proxy {proxy} has {stand_in.pool.count} records, too few for clients of {share}. Give a larger one."
        )
    options = {name: value for name, value in request.options.items() if name != "records"}
    named = replace(data, name=proxy, clients=clients, outputs=target.outputs, public_records=None, test=None)
    if not request.central:
        named = replace(named, records_per_client=share)
    return replace(
        request,
        data=named,
        options={**options, "noise_multiplier": 1.0},
        epsilon=None,
        budgets={},
        ledger="",
        unproven=False,
    )
