"""What the page may ask for. Every answer is read or computed when it is asked for; nothing is kept, nothing is written."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from sfumato.errors import SfumatoError, UnsoundRound, refused_by_system
from sfumato.private_log import unforeseen, words_of
from sfumato.report.comparison import comparison
from sfumato.report.page import one_run
from sfumato.report.read import read_runs
from sfumato.ui import ledgers, plan, watch
from sfumato.ui.folder import Runs

_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_OF_REPORTS = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
_DRAWING = threading.Lock()  # the style of a picture is a setting of the whole process


def _asked(
    population: int,
    rounds: int,
    rate: float | None = None,
    noise: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> plan.Asked:
    return plan.Asked(population, rounds, rate, noise, epsilon, delta)


_Asked = Annotated[plan.Asked, Depends(_asked)]


def application(runs: Runs, begun: Callable[[], object] = lambda: None) -> FastAPI:
    """The page of a folder of runs; `Guard` stands before it. `begun` is called when it can be asked and ended."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        begun()
        yield

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, lifespan=life)
    pages = _pages()

    @app.get("/")
    def index() -> Response:
        return _answered("index.html", pages["index.html"])

    @app.get("/page/{name}")
    def page(name: str) -> Response:
        return _answered(name, pages[name]) if name in pages else PlainTextResponse("There is no such page.\n", 404)

    @app.get("/api/cost")
    def cost(asked: _Asked) -> dict[str, Any]:
        return plan.cost(asked)

    @app.get("/api/attack")
    def attack(asked: _Asked) -> dict[str, Any]:
        return plan.attack(asked)

    @app.get("/api/runs")
    def every_run() -> dict[str, Any]:
        return {"folder": runs.root.name, "runs": watch.every(runs)}

    @app.get("/api/run")
    def run(name: str) -> dict[str, Any]:
        return watch.whole(runs, name)

    @app.get("/report")
    def report(run: Annotated[list[str], Query()]) -> Response:
        found = read_runs([runs.find(name) for name in run])
        with _DRAWING:
            text = one_run(found[0]) if len(found) == 1 else comparison(found)
        return HTMLResponse(text, headers={"Content-Security-Policy": _OF_REPORTS})

    @app.get("/api/ledgers")
    def every_ledger() -> list[str]:
        return list(ledgers.every(runs))

    @app.get("/api/ledger")
    def ledger(name: str, delta: float | None = None) -> dict[str, Any]:
        return ledgers.contents(runs, name, delta)

    @app.exception_handler(SfumatoError)
    def refused(_: Request, error: SfumatoError) -> Response:
        words = f"{error.reason} {error.fix}" if isinstance(error, UnsoundRound) else words_of(error)
        return _refusal(words)

    @app.exception_handler(RequestValidationError)
    def not_understood(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return _refusal(f"{first['loc'][-1]} {first['input']}: {first['msg'].lower()}.")

    @app.exception_handler(Exception)
    def not_foreseen(_: Request, error: Exception) -> Response:
        return _refusal(unforeseen(error))

    @app.exception_handler(OSError)
    def not_readable(_: Request, error: OSError) -> Response:
        return _refusal(str(refused_by_system(error)))

    return app


def _refusal(words: str) -> Response:
    """A refusal is an answer too, as with `--json`: the question was understood, and this is what is to be said."""
    return JSONResponse({"refused": words})


def _pages() -> dict[str, str]:
    """The page's own few files, read once; and the style of reports, which it shares."""
    own = {file.name: file.read_text(encoding="utf-8") for file in files("sfumato.ui").joinpath("page").iterdir()}
    return {**own, "report.css": files("sfumato.report").joinpath("style.css").read_text(encoding="utf-8")}


def _answered(name: str, text: str) -> Response:
    return Response(text, media_type=_KINDS[name.rpartition(".")[2]])
