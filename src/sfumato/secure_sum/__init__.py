"""A secure sum: the server learns the total of clients' rows and nothing else. Pure state machines, without a network.

    settings = SumSettings.chosen(os.urandom(32), cohort, dimension, largest=..., noise=..., smallest=..., colluding=...)
    server, clients = Server(settings), {number: Client(settings, number, Key.from_system()) for number in cohort}

| phase | a client does | with the server's letter of |
|---|---|---|
| 1 | `advertise()` | nothing yet |
| 2 | `share(letter)` | the neighbours' public keys |
| 3 | `mask(row, letter)` | the neighbours' sealed shares |
|  | `confirm(letter)`, against an active server | the survivors |
| 4 | `unmask(letter)` | the survivors, and their signatures |

After each phase the server takes the messages that came (`take`) and makes the next letters (`advance`); at last `total()`.
Bonawitz et al. (2017), with few neighbours Bell et al. (2020), in integers modulo 2^32 or 2^64. What is proven stands at
`SumSettings`, what is assumed in `assumptions(settings)`. Needs the package `cryptography`.

| what a server may try | it follows the protocol | it is active |
|---|---|---|
| read all it is sent, with the colluding clients' secrets | learns the sum | learns the sum |
| ask for both secrets of a client, or a second time | refused | refused |
| a sum of too few, or call a client dropped whose row it has | refused; the seed hides the row | the same |
| tell clients of different survivors | not tried; **would show a row** | too few signatures: refused |
| keys of its own in place of a client's | not tried; **would show masks** | signature: refused |
| different keys or shares to different clients | seals do not open: refused | the same, and signed at the end |
| messages of another round | refused | refused |
| an old session again | not tried | **whoever makes clients must refuse it** |
| other neighbours than were drawn | refused | all are neighbours |
| draw the neighbours to its liking | not tried | all are neighbours |
| send a client its own sealed shares, or another's | refused | refused |

Not covered: rows that are not what a client should send (the sum is then wrong, and nothing more is learnt); a client that spoils
a round by wrong shares (noticed, there is no total); the time that steps take, as Python's whole numbers are not
computed in constant time; and who takes part and when, which the server sees.
"""

from sfumato.secure_sum.client import Client
from sfumato.secure_sum.degree import enough
from sfumato.secure_sum.errors import BadMessage, GaveUp, Refused, SecureSumError
from sfumato.secure_sum.modulus import from_steps, to_steps
from sfumato.secure_sum.power import Power
from sfumato.secure_sum.server import Phase, Server
from sfumato.secure_sum.settings import SumSettings
from sfumato.secure_sum.words import assumptions

__all__ = [
    "BadMessage",
    "Client",
    "GaveUp",
    "Phase",
    "Power",
    "Refused",
    "SecureSumError",
    "Server",
    "SumSettings",
    "assumptions",
    "enough",
    "from_steps",
    "to_steps",
]
