"""Data sets and models of Hugging Face as they are installed: what our library does with them. Prints JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import datasets
import torch
import transformers
from torch import nn

from sfumato import Population, PublicData, Records, SfumatoError, classification, evaluate, private, recipes, simulate
from sfumato.data import records_of

WORDS, LONG, CLIP, RECORDS = 50, 12, 0.01, 16
SMALL: dict[str, Any] = {"vocab_size": WORDS, "num_labels": 2, "pad_token_id": 0}
SIZE: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
PLACES: dict[str, Any] = {"max_position_embeddings": 16}
LOSS = nn.CrossEntropyLoss(reduction="none")


def bert() -> nn.Module:
    config = transformers.BertConfig(**SMALL, **SIZE, **PLACES, attention_probs_dropout_prob=0.0)
    return transformers.BertForSequenceClassification(config)


def distilbert() -> nn.Module:
    size = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    config = transformers.DistilBertConfig(**SMALL, **size, **PLACES, attention_dropout=0.0)
    return transformers.DistilBertForSequenceClassification(config)


def gpt2() -> nn.Module:
    size = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16, "attn_pdrop": 0.0}
    config = transformers.GPT2Config(**SMALL, **size, bos_token_id=1, eos_token_id=1)
    return transformers.GPT2ForSequenceClassification(config)


def llama() -> nn.Module:
    return transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**SMALL, **SIZE, **PLACES))


MODELS: dict[str, Callable[[], nn.Module]] = {"BERT": bert, "DistilBERT": distilbert, "GPT-2": gpt2, "Llama": llama}


def texts(count: int, seed: int) -> datasets.Dataset:
    """Words of which the first tells the label, padded to one length."""
    draws = torch.Generator().manual_seed(seed)
    words = torch.randint(1, WORDS, (count, LONG), generator=draws)
    mask = torch.arange(LONG) < torch.randint(4, LONG + 1, (count, 1), generator=draws)
    columns = {"input_ids": words * mask, "attention_mask": mask.long(), "labels": (words[:, 0] > WORDS // 2).long()}
    return datasets.Dataset.from_dict({name: value.tolist() for name, value in columns.items()})


def off_a_loop(make: Callable[[], nn.Module]) -> float:
    """How far one step's sum of clipped gradients is off a loop of autograd over single records, as a share of it."""
    torch.manual_seed(0)
    ours, theirs = make(), make()
    for module in (ours, theirs):
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
    theirs.load_state_dict(ours.state_dict())
    data = texts(RECORDS, 1)
    session = private(
        ours, torch.optim.SGD(ours.parameters(), lr=0.0), data, LOSS, batch_size=RECORDS, records=RECORDS, steps=1,
        noise_multiplier=1e-6, clip=CLIP,
    )  # fmt: skip
    session.step()
    found = torch.cat([p.grad.flatten() for p in ours.parameters() if p.grad is not None]) * RECORDS
    total = torch.zeros_like(found)
    for one in data.with_format("torch"):
        loss = LOSS(
            theirs(input_ids=one["input_ids"][None], attention_mask=one["attention_mask"][None]).logits,
            one["labels"][None],
        )
        every = torch.autograd.grad(loss.sum(), list(theirs.parameters()), allow_unused=True)
        row = torch.cat(
            [
                torch.zeros(p.numel()) if g is None else g.flatten()
                for p, g in zip(theirs.parameters(), every, strict=True)
            ]
        )
        total += row * min(1.0, CLIP / float(row.norm()))
    return float((found - total).norm() / total.norm())


def trained(make: Callable[[], nn.Module]) -> dict[str, float]:
    """Accuracy on public texts after rounds of DP-FedAvg over data sets, one per client."""
    torch.manual_seed(0)
    people = Population.from_datasets([texts(20, 100 + number) for number in range(60)], clients=60)
    test = PublicData("more texts", records_of(texts(400, 7)))
    options = {"sample": "everyone", "noise_multiplier": 4.0, "lr": 0.5, "epochs": 2, "batch_size": 10, "clip": 1.0}
    started = time.perf_counter()
    for progress in simulate(
        recipes.build("dp-fedavg", 60, options), people, make(), classification(2), rounds=15, seed=0
    ):
        pass
    found = evaluate(progress.module, test.records, classification(2))["accuracy"]
    return {"accuracy": found, "epsilon": progress.epsilon(delta=1e-3), "seconds": time.perf_counter() - started}


def refusal(data: Any) -> str:
    try:
        records_of(data)
    except SfumatoError as error:
        return str(error)
    return ""


def read() -> dict[str, Any]:
    """What is read of columns of several kinds, and what is refused."""
    kinds = datasets.Features(
        {
            "pixels": datasets.List(datasets.List(datasets.Value("float32"))),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
        }
    )
    rows = {"pixels": [[[0.0, 1.0], [2.0, 3.0]]] * 3, "label": ["cat", "dog", "dog"]}
    pictures: Records = records_of(datasets.Dataset.from_dict(rows, features=kinds), target="label")
    several = records_of(texts(3, 0))
    return {
        "pictures": [list(pictures.x.shape), str(pictures.x.dtype), pictures.y.tolist()],
        "several inputs": str(several.inputs),
        "splits": refusal(datasets.DatasetDict({"train": texts(3, 0), "test": texts(3, 1)})),
        "a stream": refusal(texts(3, 0).to_iterable_dataset()),
        "texts of their own length": refusal(
            datasets.Dataset.from_dict({"input_ids": [[1], [2, 3]], "labels": [0, 1]})
        ),
    }


def main() -> None:
    """Everything, as one object."""
    found = {name: {"off a loop": off_a_loop(make), **trained(make)} for name, make in MODELS.items()}
    print(json.dumps({"models": found, "read": read()}))


if __name__ == "__main__":
    main()
