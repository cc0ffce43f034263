"""A voter and a learner of your own: clients answer by the nearest class mean, and the student takes plain gradient steps."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sfumato
from sfumato.local.task import Task
from sfumato.pieces.context import StepContext


@dataclass(frozen=True)
class NearestMean(sfumato.Voter):
    """The class whose mean is nearest. States: one vote, or none, which any record may move to any other class."""

    def ballots(self, task: Task, questions: Tensor, classes: int) -> Tensor:
        votes = torch.zeros(len(task.clients), len(questions), classes)
        for own, (x, y) in zip(votes, task.clients, strict=True):
            if len(y):
                held = y.unique()
                means = torch.stack([x[y == label].mean(0) for label in held])
                own.scatter_(1, held[torch.cdist(questions, means).argmin(1)][:, None], 1.0)
        return votes

    def bounds(self, classes: int) -> sfumato.Bounds:
        return sfumato.Bounds.of_labels(classes)


@dataclass(frozen=True)
class Descent(sfumato.Learner):
    """Steps down the weighted loss of all labelled records. Random numbers would come from `context.key`."""

    def teach(self, module: nn.Module, lesson: sfumato.Lesson, context: StepContext) -> None:
        for _ in range(100):
            with torch.enable_grad():
                loss = (F.cross_entropy(module(lesson.x), lesson.y, reduction="none") * lesson.weights).mean()
                found = torch.autograd.grad(loss, list(module.parameters()))
            for part, gradient in zip(module.parameters(), found, strict=True):
                part.data -= 0.5 * gradient


torch.manual_seed(0)  # made-up data: three classes round three points
y = torch.randint(3, (3000,))
x = 3 * F.one_hot(y, 3).float() + torch.randn(3000, 3)
population = sfumato.Population.from_list([(x[i : i + 20], y[i : i + 20]) for i in range(0, 2000, 20)], name="points")
public = sfumato.PublicData("other points", sfumato.Records(x[2000:2500], y[2000:2500]))  # labels are not looked at
queries = sfumato.Queries(public, count=50)
votes, student = sfumato.Votes(NearestMean(), queries, 3), sfumato.Student(queries, Descent(), order="uncertain")
noise = sfumato.AddNoise(sfumato.Gaussian(25 / 50**0.5))  # 25 votes: a row of 50 answers has norm sqrt(50)
round = sfumato.Round(sfumato.Everyone(), votes, sfumato.Sum(), server=(noise,), optimizer=student)
simulation = sfumato.simulate(round, population, nn.Linear(3, 3), sfumato.classification(3), rounds=2, seed=0)
for progress in simulation:
    right = progress.module(x[2500:]).argmax(1) == y[2500:]
    print(f"round {progress.round}: accuracy {right.float().mean():.2f}")
print(simulation.guarantee())
