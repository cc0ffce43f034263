"""A wire within one process: every letter goes through its bytes, as over any other wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sfumato.data.population import Population
from sfumato.engine.clients import Clients, Total
from sfumato.engine.plan import Plan
from sfumato.federation.question import OK, TRAIN, Question, answer_of
from sfumato.federation.summing import SumAnswers
from sfumato.federation.terms import Agreement, Terms
from sfumato.federation.wire import Letter

Answer = Callable[[Letter], Letter]


@dataclass
class Loopback:
    """`answers` by client; whoever is not there is offline. An answer that raises TimeoutError comes too late."""

    answers: Mapping[int, Answer]
    asked: list[tuple[int, Letter]] = field(default_factory=list)
    restarts: int = 0

    def ask(self, letters: Mapping[int, Letter], deadline: float) -> Iterator[tuple[int, Letter]]:
        for client, letter in reversed(letters.items()):  # the last is the first to reply
            sent = Letter.from_bytes(letter.to_bytes())
            self.asked.append((client, sent))
            try:
                yield client, Letter.from_bytes(self.answers[client](sent).to_bytes())
            except TimeoutError:
                continue

    def online(self) -> set[int]:
        return set(self.answers)

    def restart(self) -> None:
        self.restarts += 1

    def close(self) -> None:
        pass


class PlainClient:
    """A client without an owner's policy: it does whatever it is asked."""

    def __init__(self, people: Population, number: int) -> None:
        self.people, self.number = people, number
        self.sums = SumAnswers(self.agree, lambda question, session: self.total(question).rows, lambda session: True)

    def __call__(self, letter: Letter) -> Letter:
        if letter.kind == TRAIN:
            return answer_of(self.total(Question.read(letter)))
        answer = self.sums.handlers().get(letter.kind)
        return Letter(OK) if answer is None else answer(letter)

    def agree(self, question: Question, session: bytes = b"") -> Agreement:
        agreement = Agreement.of(Terms.read(question.terms), question.public)
        assert agreement.hash == question.hash and question.client == self.number
        return agreement

    def total(self, question: Question) -> Total:
        assert question.shared_keys is not None
        clients = Clients(self.agree(question).job, self.people, Plan())
        return clients((question.start(*question.shared_keys), [self.number])).total
