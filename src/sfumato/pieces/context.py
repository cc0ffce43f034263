"""What a piece may look at besides its value: public facts, the claim that reached it, and its own keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from sfumato.claim import Claim
from sfumato.data.population import PublicData
from sfumato.errors import BadValue
from sfumato.key import Key
from sfumato.objective import Objective
from sfumato.update import Layout


@dataclass(frozen=True)
class Context:
    """The surroundings of one piece in one round.

    At the client, `sizes` holds each row's number of records, `keys` each row's own key and `ids` its client's number. `key`
    is the piece's own key: at the client all clients share it (public randomness), at the server it is secret. `prepared` is
    what the piece made of public facts before the round, `state` what it keeps between rounds. If the value is `spare`,
    nobody else needs it, and the piece may write over it.
    """

    round: int
    layout: Layout
    claim: Claim
    key: Key
    sizes: torch.Tensor | None = None
    keys: tuple[Key, ...] = field(default=())
    ids: tuple[int, ...] = ()
    prepared: torch.Tensor | None = None
    state: torch.Tensor | None = None
    spare: bool = False
    failed: torch.Tensor | None = None  # at the client: whose training failed, [clients]; their rows are zero
    stream: Key | None = (
        None  # at the server: the piece's own from the run's start to its end, for noise over several rounds
    )

    def stream_key(self, round: int) -> Key:
        """A server piece's key of any round since the run was started or resumed: that noise can be drawn again."""
        if self.stream is None:
            raise BadValue("a client piece cannot have a key of the server: it would know the noise that hides others.")
        return self.stream.child("round", number=round)


@dataclass(frozen=True)
class Facts:
    """What is public before a round begins: for pieces that prepare something all clients share.

    `previous` is the last released aggregate, None in the first round; `train` is local training on public data; `state` is what
    the optimizer keeps, a function of what was released.
    """

    layout: Layout
    key: Key
    previous: torch.Tensor | None
    train: Callable[[PublicData], torch.Tensor]
    state: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class MessageContext:
    """What an aggregate may look at besides the messages, all of it public or paid for.

    `params` are those from which the clients began; `module(params)` is a copy of the model with such parameters. `clients`
    are the senders by number, in the order of the messages; None where the channel does not show them. `key` is the server's.
    """

    round: int
    layout: Layout
    claim: Claim
    params: torch.Tensor
    objective: Objective
    module: Callable[[torch.Tensor], nn.Module]
    key: Key
    clients: tuple[int, ...] | None = None


@dataclass(frozen=True)
class StepContext:
    """What an optimizer may look at besides the release: enough to train a student on public data, which is a field of its own.

    `module(params)` is a copy of the model with these parameters, to do with as one likes; `layout.row` reads it out. `key` is
    the server's, for this round. `stddev` is that of the noise that was paid for, on each coordinate; None if there is none.
    """

    round: int
    layout: Layout
    objective: Objective
    module: Callable[[torch.Tensor], nn.Module]
    key: Key
    stddev: float | None = None
