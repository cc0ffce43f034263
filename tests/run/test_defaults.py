"""Whoever names only the data gets what suits them, in Python as on the command line."""

from __future__ import annotations

from sfumato.commands.asked import request_from
from sfumato.run.request import DataRequest, ModelRequest, Request


def test_data_by_name_alone_come_with_their_split_task_clients_and_model() -> None:
    shakespeare = Request(data=DataRequest(name="shakespeare"))
    data = shakespeare.data
    assert (data.split, data.task, data.clients, shakespeare.model.name) == (
        "natural",
        "next-character",
        100,
        "char-lstm:64",
    )
    wind = DataRequest("gefcom2012-wind")
    assert (wind.task, wind.clients, wind.records_per_client) == ("regression", 7, 0)
    assert DataRequest() == DataRequest("digits", clients=200, records_per_client=7, split="iid", task="classification")
    assert DataRequest("shakespeare", split="iid").split == "iid" and DataRequest("office-caltech10").clients == 4
    assert Request(data=DataRequest("shakespeare"), model=ModelRequest("mlp")).model.name == "mlp"


def test_the_command_line_a_file_and_python_agree() -> None:
    for name in ("digits", "mnist", "shakespeare", "celeba", "gefcom2012-wind"):
        python = Request(epsilon=2.0, data=DataRequest(name))
        assert request_from(None, None, {"data": name}, [])[0] == python
        assert request_from(None, None, {}, [f"data.name={name}"])[0] == python
        assert Request.from_text(f'epsilon = 2.0\n[data]\nname = "{name}"\n', "a file") == python
        assert Request.from_text(python.to_toml(), "itself") == python


def test_columns_survive_the_file() -> None:
    columns = {
        "target": "ill",
        "client": "the clinic",
        "scale": {"blood pressure": [80.0, 200.0]},
        "categories": {"ü": ["a"]},
    }
    request = Request(data=DataRequest("a.csv", columns=columns, counted=True, clients=12))
    assert Request.from_text(request.to_toml(), "itself") == request
    declared = request.with_value("data.clients", 20)
    assert (declared.data.clients, declared.data.counted) == (20, False)
    assert request.with_value("data.columns.scale.age", [0, 9]).data.columns["scale"]["age"] == [0, 9]
