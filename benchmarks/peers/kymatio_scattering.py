"""Scatter pictures by kymatio; run by `benchmarks.scattering` in the peer's environment: IN.npz OUT.npz SECONDS.json."""

import json
import sys
import time
from importlib.metadata import version

import numpy as np
import torch
from kymatio.numpy import Scattering2D as InNumpy
from kymatio.torch import Scattering2D as InTorch

torch.set_num_threads(1)
given, found, seconds = np.load(sys.argv[1]), {}, {}
for name in given.files:
    scales, x = int(name.split()[0]), given[name]
    setting = {"J": scales, "shape": x.shape[-2:], "L": 8, "max_order": 2}
    found[name] = InNumpy(**setting)(x.astype(np.float64)).reshape(
        len(x), -1, *[size >> scales for size in x.shape[-2:]]
    )
    transform, pictures = InTorch(**setting), torch.from_numpy(x)
    transform(pictures[:2])
    seconds[name] = {}
    for batch in (1, 32):
        start = time.process_time()
        for part in pictures.split(batch):
            transform(part)
        seconds[name][f"{batch} at a time"] = (time.process_time() - start) / len(x)
np.savez(sys.argv[2], **found)
with open(sys.argv[3], "w") as file:
    json.dump({"version": version("kymatio"), "seconds": seconds}, file)
