"""Asks an application without a network: what is sent is what is written, and nothing is tidied up on the way."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlencode

from starlette.types import ASGIApp, Message


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status_code: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class Asker:
    """A browser as far as the application can tell: it sends Host and its cookie."""

    app: ASGIApp
    host: str = "127.0.0.1"
    cookie: str = ""

    def get(self, path: str, params: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> Answer:
        return self.request("GET", path, params, headers)

    def request(
        self, method: str, path: str, params: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        plain, _, query = path.partition("?")
        told = {"Host": self.host, "Cookie": self.cookie, **(headers or {})}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(plain), "raw_path": plain.encode(), "root_path": "", "client": ("127.0.0.1", 1),
            "query_string": (urlencode(params) if params else query).encode(), "server": ("127.0.0.1", 1),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in told.items() if value],
        }  # fmt: skip
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        async def call() -> None:
            await self.app(scope, receive, send)

        asyncio.run(call())
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], found, b"".join(part.get("body", b"") for part in sent[1:]))
