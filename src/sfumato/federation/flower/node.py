"""A node's end of a wire over Flower: a SuperNode that carries letters, and this process, which answers them.

Flower would unpack the app that a run brought along and run it, once a message. Here the message goes to this process, which
stays up and answers with what its owner installed; the app that the run brought is never unpacked.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.runtime import RuntimeHttpClient

from sfumato.federation.flower.calls import CallFailed, call
from sfumato.federation.flower.parcel import Arrival, letter_in, packing
from sfumato.federation.flower.settings import NodeSettings
from sfumato.federation.flower.supervised import SuperNode
from sfumato.federation.wire import Letter
from sfumato.private_log import unforeseen

Answer = Callable[[Letter], Letter]
_log = logging.getLogger("sfumato.federation")
_HEARTBEAT = 10.0
_ARRIVING = 0.02  # seconds between two looks for what SuperNode is still receiving


def serve(answer: Answer, settings: NodeSettings, stop: threading.Event | None = None) -> None:
    """Answer the server's letters until `stop` is set, or Ctrl-C or SIGTERM comes; then end what was started.

    One letter at a time, in this thread. An exception in `answer` leaves as the kind "failed", without a word of it: its text
    could hold data. Whatever fails on the way to or from the server is no end: the server goes without a reply, and the next
    letter comes.
    """
    stop = stop or threading.Event()
    with _term_ends(), SuperNode(settings) as node:
        while not stop.is_set():
            node.keep(stop)
            try:
                if (task := node.task()) is None:
                    stop.wait(settings.poll)
                    continue
                with task, _beating(task):
                    _work(task, answer)
            except CallFailed as error:
                _log.debug("%s", error)
                stop.wait(settings.poll)


def _work(task: RuntimeHttpClient, answer: Answer) -> None:
    """One task: a letter in, a letter out. SuperNode waits until a message is replied to, so there always is a reply."""
    given = call(task.PullTaskInput, PullTaskInputRequest())  # brings the run's app, which is left alone
    node, run = Node(node_id=given.context.node_id), given.run.run_id
    header, arrival = _receive(task, node, run)
    number = b""
    with packing() as packer:
        try:
            number, letter = letter_in(arrival.message())
            parcel = packer.reply(answer(letter), number, header)
        except Exception as error:  # of whatever kind
            _log.error("a letter was not answered: %s", unforeseen(error))
            parcel = packer.reply(Letter("failed"), number, header)
        request = PushAppMessagesRequest(messages_list=[parcel.message], message_object_trees=[parcel.tree])
        pushed = call(task.PushMessages, request)
        for name in pushed.objects_to_push:
            push = PushObjectRequest(
                node=node,
                run_id=run,
                object_id=name,
                object_content=parcel.objects[name].deflate(),
                session_id=pushed.session_id,
            )
            call(task.PushObject, push)
    call(task.PushTaskOutput, PushTaskOutputRequest(sub_status=SubStatus.COMPLETED))


def _receive(task: RuntimeHttpClient, node: Node, run: int) -> tuple[Message, Arrival]:
    """The message of a task, its header and its objects; SuperNode gives out tasks whose message it is still receiving."""
    while not (pulled := call(task.PullMessages, PullAppMessagesRequest())).messages_list:
        time.sleep(_ARRIVING)
    arrival = Arrival(pulled.message_object_trees[0])

    def pull(name: str) -> bytes | None:
        found = call(task.PullObject, PullObjectRequest(node=node, run_id=run, object_id=name))
        return bytes(found.object_content) if found.object_available else None

    while not arrival.step(pull):
        time.sleep(_ARRIVING)
    confirm = ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=arrival.name)
    call(task.ConfirmMessageReceived, confirm)
    return message_from_proto(pulled.messages_list[0]), arrival


@contextmanager
def _beating(task: RuntimeHttpClient) -> Iterator[None]:
    """Tell SuperNode that the task is in work: after a minute without, it gives the task up."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_HEARTBEAT):
            with suppress(CallFailed):
                call(task.SendTaskHeartbeat, SendTaskHeartbeatRequest())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _term_ends() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does, through every `finally`; if it is ours to say."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
