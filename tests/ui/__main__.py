"""`python -m tests.ui PICTURE.png [FOLDER]`: the picture of the planner for the documentation, from the page itself."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.ui.serving import browser_path, browsing, served

picture = Path(sys.argv[1])
browser = browser_path()
assert browser is not None, "install chromium"
with tempfile.TemporaryDirectory() as nothing, served(Path(nothing)) as address, browsing(browser) as window:
    page = window.new_page(viewport={"width": 1100, "height": 1020}, color_scheme="light")
    page.goto(address)
    page.wait_for_selector(".answer:not(.waiting)")
    page.locator("#attack svg .line").wait_for()
    page.screenshot(path=str(picture))
    few = Image.open(picture).convert("RGB").quantize(64)  # flat colours: a quarter of the bytes
    few.save(picture, optimize=True)
print(f"{picture}: {picture.stat().st_size:,} bytes")
