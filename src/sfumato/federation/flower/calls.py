"""Requests to Flower's processes, without Flower's habits.

Flower's own clients answer a refusal by an interrupt to the process they run in, and retry for ever. That may suit an app; here
a process holds a ledger, and decides itself. A request that fails raises `CallFailed`.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor
from flwr.supercore.protobuf.client import (
    ProtobufCall,
    ProtobufClient,
    ProtobufRequestContext,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata

if (_log := logging.getLogger("httpx")).level == logging.NOTSET:
    _log.setLevel(logging.WARNING)  # or it would tell of every look for a message

_TIMEOUT = 30.0  # seconds
_Client = TypeVar("_Client", bound=ProtobufClient)
_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class CallFailed(Exception):
    """A request that was not answered, or was refused: `refused` tells which."""

    def __init__(self, name: str, error: Exception) -> None:
        self.refused = isinstance(error, httpx.HTTPStatusError)
        super().__init__(f"{name}: {error}")


class _Headers:
    """Adds the same headers to every request."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = dict(headers) | dict(RuntimeVersionMetadata.from_local_component("sfumato").as_metadata())

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        context.request.headers.update(self._headers)
        return call_next(context)


def call(method: Callable[[_Request], _Response], request: _Request) -> _Response:
    """The response to a request; whatever goes wrong is one kind of error."""
    try:
        return method(request)
    except (httpx.HTTPError, ValueError, RuntimeError) as error:  # RuntimeError: a client that was closed
        raise CallFailed(method.__name__, error) from error


def control(address: str, certificate: Path, headers: Mapping[str, str]) -> ControlHttpClient:
    """The operator's side of our SuperLink, which is known by its certificate."""
    return _made(ControlHttpClient, f"https://{address}", [_Headers(headers)], pinned(certificate))


def runtime(address: str, certificate: Path, headers: Mapping[str, str], token: str = "") -> RuntimeHttpClient:
    """The side of our SuperLink that serves a run; with the token of a task, as that task."""
    return _made(
        RuntimeHttpClient, f"https://{address}", [_Headers(dict(headers) | _token(token))], pinned(certificate)
    )


def beside(address: str, certificate: Path, secret: bytes, token: str = "") -> RuntimeHttpClient:
    """The side of a SuperNode on this host that serves tasks; without a token, only to acquire one.

    It shows a certificate of our own: the secret tells SuperNode who asks, and not us who answers, and any user of this host may
    listen at a port that is free.
    """
    signing = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=["/flwr.proto.Runtime/AcquireTask"])
    return _made(RuntimeHttpClient, f"https://{address}", [_Headers(_token(token)), signing], pinned(certificate))


def pinned(certificate: Path) -> ssl.SSLContext:
    """Trust in the holder of this one certificate, whatever names stand in it: a server knows its own SuperLink by it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    first = x509.load_pem_x509_certificate(certificate.read_bytes())
    context.load_verify_locations(cadata=first.public_bytes(Encoding.DER))
    return context


def _token(token: str) -> dict[str, str]:
    return {TASK_TOKEN_HEADER: token} if token else {}


def _made(kind: type[_Client], url: str, interceptors: Sequence[Any], verify: ssl.SSLContext | bool) -> _Client:
    """A client that heeds no proxy: it speaks to this host, and a proxy elsewhere would read every row."""
    client = kind(url, interceptors=interceptors, verify=verify)
    client._client.close()
    client._client = httpx.Client(verify=verify, timeout=_TIMEOUT, trust_env=False)
    return client
