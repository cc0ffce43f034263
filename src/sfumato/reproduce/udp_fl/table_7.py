"""UDP-FL, Table 7: pictures from a client's message by gradient inversion, by epsilon, beside what the paper prints."""

from __future__ import annotations

from typing import Any

import torch

from sfumato.audit.inversion import Inversion, Scene
from sfumato.audit.one_client import SERVER, one_step
from sfumato.audit.picture_measures import Pixels, each, flat, paired
from sfumato.data.population import Records
from sfumato.key import Key
from sfumato.report.curves import Plot
from sfumato.reproduce.table import Group, Row, Settings, Table, Work, at
from sfumato.reproduce.training import Start, dataset_of, threads_of
from sfumato.reproduce.udp_fl import attacked, common
from sfumato.run.prepare import Prepared
from sfumato.run.request import Request
from sfumato.update import Layout

# MSE, PSNR (which the table calls F1) and SSIM at epsilon 2, 4, 6 and 8
PRINTED = {
    "gaussian": ((2.2646, 8.51, 0.0195), (2.2058, 8.69, 0.0414), (2.1532, 8.76, 0.0417), (2.1463, 8.78, 0.0519)),
    "laplace": ((2.2686, 8.63, 0.0573), (2.1840, 8.68, 0.0629), (2.1532, 8.83, 0.0692), (2.1290, 8.95, 0.0746)),
    "staircase": ((2.3399, 8.37, 0.0096), (2.2405, 8.39, 0.0204), (2.1910, 8.54, 0.0207), (2.1832, 8.73, 0.0225)),
}
FREE = (1.7104, 9.79, 0.0751)
GREY, FLAT = "grey picture (no attack)", "flat mean colour (no attack)"
_BATCHES = [[1, 8, 400], [10, 1, 300], [100, 1, 150]]  # records of a client, how many clients, iterations
_WORDS = ("mse", "psnr", "ssim")
_SCALED = (
    "A CNN of 122,570 parameters in place of ResNet-18, untrained; the noise of 60 rounds for 10 clients with 2,000 pictures "
    "each; 8 single pictures, one batch of 10 and one of 100."
)
_NOTES = (
    *attacked.NOTES,
    "Ours: the message of a client's first round, of one local step on a batch that holds exactly these records, as the server of "
    "the run sees it. Bands are over the pictures; those of one batch share one attack. Labels are recovered from the message. "
    "Fewer iterations for larger batches.",
    "The middle column of the paper's table, headed F1, is PSNR: with its MSE it implies a peak of 4.0, that of pictures scaled to "
    "unit variance. In those units a grey picture has an MSE of about 1, so that each of the paper's rows, the one without "
    "privacy too, is worse than guessing grey; MSE is in the same units here. The paper averages batches of up to 100.",
)


def inverted(settings: Settings, seed: int) -> dict[str, Any]:
    """Invert messages of one round: measures of batches of several sizes, and what the message's noise costs."""
    with threads_of(settings):
        return _inverted(settings, seed)


INVERTED = Work("sfumato.reproduce.udp_fl.inverted", inverted)


def _inverted(settings: Settings, seed: int) -> dict[str, Any]:
    dataset, key = dataset_of(settings["data"], 0), Key.from_seed(seed).child("inversion")
    start = Start.of(settings, seed, dataset, settings["records"])
    dimension, pixels = Layout.of(start.module).dimension, Pixels.of(dataset.test.records.x)
    guess = settings.get("guess")
    round = common.round_of(settings, None, dimension)
    people, shape = start.population, dataset.input_shape
    prepared = Prepared(
        Request(), people, dataset.test, start.module, start.objective, round, shape, dataset.classes, {}
    )
    params = Layout.of(start.module).row(start.module)
    found: dict[str, dict[str, list[float]]] = {}
    for size, clients, iterations in settings["batches"]:
        order = key.child("victims", size=size).permutations(1, dataset.pool.count)[0][: size * clients]
        rows = torch.from_numpy(order)
        truth = dataset.scaling(dataset.pool.x[rows])
        made = []
        for number in range(clients):
            own = slice(number * size, (number + 1) * size)
            records = Records(truth[own], dataset.pool.y[rows][own])
            if guess is not None:
                made.append(flat(records.x) if guess == FLAT else torch.zeros_like(records.x))
                continue
            scene, one = Scene("batch", SERVER, number, records), one_step(round, size)
            search = Inversion(iterations=iterations).search(
                prepared, one, scene, params, pixels, key.child("size", of=size)
            )
            made.append(paired(search["pictures"], records.x))
        measures = each(torch.cat(made), truth, pixels)
        found[str(size)] = {word: attacked.band(measures[word].tolist()) for word in _WORDS}
    cost: dict[str, Any] = {"epsilon": None, "really": None} if guess else attacked.costs(settings, dimension)
    return {"batches": found, **cost}


def table(scale: str) -> Table:
    """The table at a scale."""
    batches = at(scale, [[1, 2, 5], [3, 1, 5]], _BATCHES, [[1, 8, 1200], [10, 4, 1200], [100, 2, 1200]])
    settings = {**common.sized(scale, common.CIFAR), "batches": batches}
    cells = attacked.cells(scale, settings, INVERTED, PRINTED, FREE)
    for guess in (GREY, FLAT):
        cells += attacked.cell(scale, guess, {**settings, **common.FREE, "guess": guess}, INVERTED)
    title, words = "UDP-FL, Table 7: gradient inversion", common.words(scale, _SCALED)
    return Table("udp-fl-table-7", title, common.PAPER, scale, cells, _row, _plots, words, _NOTES)


def _row(done: Group) -> Row:
    def ours(done: Group) -> Row:
        return {
            f"batch of {size}, {word.upper()}": attacked.shown(attacked.over(done, "batches", size, word), digits)
            for size in done[0].result["batches"]
            for word, digits in zip(_WORDS, (2, 1, 3), strict=True)
        }

    return attacked.row(done, "MSE PSNR SSIM", ours)


def _plots(done: Group) -> list[Plot]:
    def value(own: Group) -> list[float]:
        return attacked.over(own, "batches", "1", "psnr")

    return attacked.plot("psnr-of-one-picture", "PSNR of one inverted picture", "PSNR (dB)", done, value)
