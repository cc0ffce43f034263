"""`make notebooks`: run the notebooks of the tutorial, and keep what they gave."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.site.notebooks import NOTEBOOKS, store

for notebook in NOTEBOOKS:
    with tempfile.TemporaryDirectory() as folder:
        store(notebook, Path(folder))
