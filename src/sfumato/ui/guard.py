"""Who may ask: a browser on this machine that was given the address with its token, for this page and no other.

Binding to 127.0.0.1 keeps other machines out, but not other pages in the same browser, nor other users of this machine. So
  Host     must name this machine and port: a name that an attacker's DNS turns to 127.0.0.1 does not (DNS rebinding)
  Origin, Sec-Fetch-Site     must be this page's own: other pages get nothing, and no header ever allows them to
  token    32 random bytes in the address that is printed, then in a cookie that no script and no other site can use
and only GET is answered, since nothing here changes anything.
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"
_SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets through to the application only what the page itself asks, and seals every answer."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.token = app, token
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        self.cookie = f"sfumato-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":  # nothing else is served
            return None
        answer: ASGIApp = self._refusal(scope) or self._welcome(scope) or self.app
        return await answer(scope, receive, _sealed(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self.hosts:
            return _refused(f"This page is served at {HOST} only, and not at {host[:200]!r}.", 421)
        if origin is not None and origin != f"http://{host}":
            return _refused("Another page asked for this, and gets nothing.")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _refused("Another page asked for this, and gets nothing. Paste the address instead.")
        if scope["method"] not in ("GET", "HEAD"):
            return _refused("Nothing can be changed here: only GET is answered.", 405)
        return None

    def _welcome(self, scope: Scope) -> Response | None:
        """The token becomes a cookie; without either there is no answer."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if scope["path"] == "/" and self._is_token(query.get("token", [""])[0]):
            welcome = RedirectResponse("/", 303)
            welcome.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
            return welcome
        if self._is_token(self._sent_cookie(Headers(scope=scope).get("cookie", ""))):
            return None
        return _refused("Open the address that sfumato ui printed, with its token.")

    def _is_token(self, word: str) -> bool:
        return hmac.compare_digest(word.encode(), self.token.encode())

    def _sent_cookie(self, text: str) -> str:
        try:
            found = SimpleCookie(text).get(self.cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value


def _refused(words: str, status: int = 403) -> Response:
    return PlainTextResponse(words + "\n", status)


def _sealed(send: Send) -> Send:
    async def sealed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SAFE.items():
                headers.setdefault(name, value)
        await send(message)

    return sealed
