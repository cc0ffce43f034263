"""A piece of your own: what it does, what it states, and the laws that check the one against the other."""

from dataclasses import dataclass

import torch

from sfumato import AddNoise, ClientPiece, Gaussian, Mean, Poisson, Population, Round, Sgd, regression, simulate
from sfumato.claim import Claim
from sfumato.pieces.context import Context
from sfumato.testing import check_piece, check_round


@dataclass(frozen=True)
class Signs(ClientPiece):
    """Keep the sign of each coordinate: every row becomes (+-1, ..., +-1) times norm / sqrt(dimension).

    States: the L2 norm of a row is at most `norm`. NaN counts as 0, and 2^-20 of the norm is left for float32 rounding.
    """

    norm: float

    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        step = self.norm / (1 + 2.0**-20) / rows.shape[1] ** 0.5
        return torch.nan_to_num(torch.sign(rows)) * step

    def carry(self, claim: Claim) -> Claim:
        return claim if claim.paid else claim.bounded(l2=self.norm)


@dataclass(frozen=True)
class Careless(ClientPiece):
    norm: float  # stated as before, but of each coordinate alone

    def __call__(self, rows: torch.Tensor, context: Context) -> torch.Tensor:
        return torch.nan_to_num(torch.sign(rows)) * self.norm

    def carry(self, claim: Claim) -> Claim:
        return claim.bounded(l2=self.norm)


def main() -> None:
    check_piece(Signs(1.0))
    try:
        check_piece(Careless(1.0))
    except AssertionError as broken:
        print(f"the laws found: {broken}")

    noise = AddNoise(Gaussian(noise_multiplier=1.0))
    round = Round(Poisson(rate=0.5), Sgd(lr=0.1, epochs=1), Mean(over=50), client=(Signs(1.0),), server=(noise,))
    check_round(round)  # an attack on the whole round finds no more than is claimed
    torch.manual_seed(0)  # made-up data
    clients = [(x, x.sum(1)) for x in torch.randn(100, 8, 3)]
    population = Population.from_list(clients, name="sums")
    *_, progress = simulate(round, population, torch.nn.Linear(3, 1), regression(), rounds=5)
    print(progress.guarantee())


if __name__ == "__main__":
    main()
