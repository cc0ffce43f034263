"""Requests to Flower's processes, without Flower's habits.

Flower's own clients answer a refusal by an interrupt to the process they run in, and retry for ever. That may suit an app; here
a process holds a ledger, and decides itself. A request that fails raises `CallFailed`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import httpx
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufClient, ProtobufRequestContext
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata

if (_log := logging.getLogger("httpx")).level == logging.NOTSET:
    _log.setLevel(logging.WARNING)  # or it would tell of every look for a message

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


def control(address: str, authority: Path, headers: Mapping[str, str]) -> ControlHttpClient:
    """The operator's side of a SuperLink."""
    return _secure(ControlHttpClient, address, authority, headers)


def runtime(address: str, authority: Path, headers: Mapping[str, str], token: str = "") -> RuntimeHttpClient:
    """The side of a SuperLink that serves a run; with the token of a task, as that task."""
    return _secure(RuntimeHttpClient, address, authority, dict(headers) | _token(token))


def beside(address: str, authority: Path, secret: bytes, token: str = "") -> RuntimeHttpClient:
    """The side of a SuperNode on this host that serves tasks; without a token, only to acquire one.

    It shows a certificate of our own: the secret tells SuperNode who asks, and not us who answers, and any user of this host may
    listen at a port that is free.
    """
    signing = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=["/flwr.proto.Runtime/AcquireTask"])
    headers = _Headers(_token(token))
    return _direct(RuntimeHttpClient.from_server_address(address, False, authority.read_bytes(), [headers, signing]))


def _token(token: str) -> dict[str, str]:
    return {TASK_TOKEN_HEADER: token} if token else {}


def _secure(kind: type[_Client], address: str, authority: Path, headers: Mapping[str, str]) -> _Client:
    return _direct(kind.from_server_address(address, False, authority.read_bytes(), [_Headers(headers)]))


def _direct(client: _Client) -> _Client:
    """Without the proxy that the environment may name: what is asked here is on this host."""
    client._client._mounts.clear()
    return client
