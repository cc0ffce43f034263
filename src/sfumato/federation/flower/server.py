"""The server's end of a wire over Flower."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType

from sfumato.errors import BadValue
from sfumato.federation.certificates import private_folder
from sfumato.federation.flower.asking import Asking
from sfumato.federation.flower.calls import CallFailed
from sfumato.federation.flower.child import Child
from sfumato.federation.flower.run import Run
from sfumato.federation.flower.settings import ServerSettings
from sfumato.federation.flower.superlink import SECRET
from sfumato.federation.wire import Letter, WireLost

_START = 30.0  # seconds for SuperLink to start
_HEARTBEAT = 10.0


class FlowerWire:
    """A Wire whose nodes are SuperNodes: starts a SuperLink of its own, and ends it.

    Nodes are known by the keys of the registry, never by what they say. SuperLink holds rows in memory only, and holds them
    bare: whoever operates this host sees them. It is lost when it is killed, with every question in work: `ask` then raises
    WireLost, and `restart` starts another, to which nodes come by themselves.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._folder = private_folder(settings.folder)
        self._start()

    def _start(self) -> None:
        settings, secret = self.settings, secrets.token_hex(32)
        options = ["--host", settings.host, "--port", str(settings.port)]
        options += ["--ssl-certfile", str(settings.certificate), "--ssl-keyfile", str(settings.key)]
        options += ["--ssl-ca-certfile", str(settings.authority), "--enable-supernode-auth", "--isolation", "process"]
        options += ["--disable-runtime-dependency-installation"]
        self._child = Child("sfumato.federation.flower.superlink", options, self._folder, secret)
        try:
            self._run = self._open_run({SECRET: secret})
        except BaseException:
            self._child.close()
            raise
        self._late: list[str] = []
        self._ended = threading.Event()
        threading.Thread(target=_beat, args=(self._run, self._ended), daemon=True).start()

    def _open_run(self, headers: Mapping[str, str]) -> Run:
        run, end = Run(self.settings.address, self.settings.certificate, headers), time.monotonic() + _START
        while True:
            try:
                run.online()
                run.open(self.settings.registry)
                return run
            except CallFailed as error:
                if not self._child.alive or error.refused or time.monotonic() > end:
                    run.close()
                    raise self._lost(error) from error
            time.sleep(0.05)

    def ask(self, letters: Mapping[int, Letter], deadline: float) -> Iterator[tuple[int, Letter]]:
        """As Wire.ask: letters leave, and the time starts, with the first step of the loop; who comes online is still asked."""
        if strangers := letters.keys() - set(range(len(self.settings.registry))):
            raise BadValue(f"there is no client {min(strangers)}: the registry has {len(self.settings.registry)}.")
        return self._replies(letters, deadline)

    def _replies(self, letters: Mapping[int, Letter], deadline: float) -> Iterator[tuple[int, Letter]]:
        asking = Asking(self._run, letters, deadline)
        try:
            self._drop_late()
            while asking.seconds_left:
                asking.post()
                yield from asking.look()
                time.sleep(min(self.settings.poll, asking.seconds_left))
        except CallFailed as error:
            raise self._lost(error) from error
        finally:
            with suppress(CallFailed):
                self._late += asking.withdraw()

    def _drop_late(self) -> None:
        """Delete what came for earlier questions; SuperLink tells of each, at the latest when the question is void."""
        if self._late:
            for reply in self._run.replies(self._late):
                self._run.forget(reply.tree.object_id)
                self._late.remove(reply.to)

    def online(self) -> set[int]:
        """The clients whose nodes were heard of in the last 20 seconds."""
        try:
            return self._run.online()
        except CallFailed as error:
            raise self._lost(error) from error

    def restart(self) -> None:
        """End SuperLink, if it has not ended, and start another in its place."""
        self.close()
        self._start()

    def close(self) -> None:
        """End SuperLink and everything that it started."""
        self._ended.set()
        self._run.close()
        self._child.close()

    def __enter__(self) -> FlowerWire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lost(self, error: CallFailed) -> WireLost:
        state = "does not answer" if self._child.alive else f"has ended (status {self._child.status})"
        return WireLost(
            f"SuperLink at {self.settings.address} {state}: {error}. Start it anew with restart(), and ask again; nodes come "
            f"back by themselves. Its log is {self._child.log}, and ends:\n{self._child.last_words()}"
        )


def _beat(run: Run, ended: threading.Event) -> None:
    while not ended.wait(_HEARTBEAT):
        with suppress(CallFailed):  # the next question will tell
            run.heartbeat()
