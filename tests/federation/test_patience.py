"""What a SuperNode tries again: whatever may be an accident."""

from __future__ import annotations

import httpx
import pytest

pytest.importorskip("flwr", reason="sfumato[flower] is not installed")

from flwr.supercore.retry.http_retry import make_simple_http_retry_invoker

from sfumato.federation.flower.supernode import patient

TRIED_AGAIN = {
    "_ssl.c:989: The handshake operation timed out": True,
    "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol (_ssl.c:1002)": True,
    "[Errno 111] Connection refused": True,
    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in chain": False,
}


@pytest.mark.parametrize("words", TRIED_AGAIN)
def test_only_a_wrong_certificate_is_not_tried_again(words: str) -> None:
    invoker = patient(make_simple_http_retry_invoker)()
    assert invoker.should_giveup(httpx.ConnectError(words)) != TRIED_AGAIN[words]


def test_flower_itself_gives_up_on_a_handshake_that_breaks_off() -> None:
    invoker = make_simple_http_retry_invoker()
    assert invoker.should_giveup is not None
    assert invoker.should_giveup(httpx.ConnectError("_ssl.c:989: The handshake operation timed out"))


def test_a_server_that_refuses_is_not_asked_again() -> None:
    request = httpx.Request("POST", "https://127.0.0.1")
    refused = httpx.HTTPStatusError("no", request=request, response=httpx.Response(404, request=request))
    assert patient(make_simple_http_retry_invoker)().should_giveup(refused)
