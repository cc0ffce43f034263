"""The page as users have it: `sfumato ui` in a process of its own, which whoever starts it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


@contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """The address, with its token; the process is ended as by Ctrl-C, and must end well."""
    words = [sys.executable, "-m", "sfumato", "ui", str(folder), "--port", "0", *options]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, process.stderr.read()
        yield found[0]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0 and said == "", said
    finally:
        process.kill()
        process.communicate()


def browser_path() -> str | None:
    """A browser of this machine."""
    import shutil

    return next((path for name in _BROWSERS if (path := shutil.which(name))), None)


@contextmanager
def browsing(path: str) -> Iterator[Any]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()
