"""Figure 1 of DP-Fed-LS: noisy gradient descent in two dimensions, with and without Laplacian smoothing."""

import tempfile
from pathlib import Path

import numpy as np

from sfumato import Key
from sfumato.pieces.after_noise import smooth
from sfumato.report.curves import Curve, Plot
from sfumato.report.pictures import png

POINTS, UPDATES, LR, NOISE = 200, 100, 0.1, 0.3


def points(key: Key) -> tuple[np.ndarray, np.ndarray]:
    """Two clouds around (1, 1) with y = 0 and (-1, -1) with y = 1: the perfect weights are (c, c) with c < 0."""
    y = np.arange(POINTS) % 2
    return key.normal(POINTS, 2).numpy() * 0.5 + (1.0 - 2.0 * y)[:, None], y


def descend(x: np.ndarray, y: np.ndarray, strength: float, key: Key) -> np.ndarray:
    """The weights of y = sigmoid(W x) after each update; the noise is the same whatever the strength."""
    weights, path = np.zeros(2), [np.zeros(2)]
    for update in range(UPDATES):
        gradient = x.T @ (1.0 / (1.0 + np.exp(-x @ weights)) - y) / len(y)
        noisy = gradient + NOISE * key.child("noise", update=update).normal(2).numpy()
        weights = weights - LR * smooth(noisy, strength)
        path.append(weights)
    return np.array(path)


def main() -> None:
    key = Key.from_seed(0)
    x, y = points(key.child("points"))
    curves = []
    for index, (name, strength) in enumerate((("GD", 0.0), ("LSGD, strength 1", 1.0))):
        path = descend(x, y, strength, key)
        off = np.abs(path[:, 0] - path[:, 1]).mean() / np.sqrt(2.0)
        print(
            f"{name}: ends at ({path[-1, 0]:.2f}, {path[-1, 1]:.2f}), on average {off:.3f} away from the line of solutions"
        )
        curves.append(Curve(name, index, tuple(path[:, 0]), tuple(path[:, 1])))
    ends = min(curve.xs[-1] for curve in curves)
    curves.append(Curve("solutions (c, c)", 7, (0.0, ends), (0.0, ends)))
    picture = Path(tempfile.gettempdir()) / "smoothing_2d.png"
    picture.write_bytes(png(Plot("smoothing-2d", "Weights by update", "First weight", "Second weight", tuple(curves))))
    print(f"picture: {picture}")


if __name__ == "__main__":
    main()
