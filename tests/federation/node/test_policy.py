"""node.toml is read strictly: what is unknown, missing or cannot be meant is refused in words."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sfumato.account.event import Unit
from sfumato.data.apart import DeclaredRecords
from sfumato.errors import BadValue, DataError
from sfumato.federation.node.log import file_log
from sfumato.federation.node.policy import Policy
from sfumato.ledger.ledger import Budget

WHOLE = """
[node]
client = 3
data = "records"
name = "ward-7"
folder = "state"
reply_seconds = 20

[records]
task = "multi-label"
outputs = 4
input_shape = [1, 8, 8]
input_type = "uint8"
target_shape = [4]
target_type = "float32"

[allow]
recipes = ["dp-fedavg", "prifedsync"]
models = ["library", "mine:net"]
features = ["hog"]
smallest_noise = 1
smallest_cohort = 20
rounds_per_day = 12
promise = "suffices"
shared_keys = false
unproven = true
nonprivate = true

[allow.data.ward-7]
epsilon = 2
delta = 1e-6
unit = "record"

[allow.data.ward-8]
epsilon = inf

[allow.total]
epsilon = 3.5
delta = 1e-5
"""
LEAST = '[node]\nclient = 0\ndata = "mine:data"\nname = "a"\n'


def read(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return Policy.from_toml(path)


def test_a_budget_without_a_delta_is_at_the_default(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE.replace("delta = 1e-6", "")).budgets["ward-7"] == Budget(2.0, 1e-5, Unit.RECORD)


def test_every_key_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert found == Policy(
        client=3,
        data=str(tmp_path / "records"),
        name="ward-7",
        folder=tmp_path / "state",
        recipes=("dp-fedavg", "prifedsync"),
        models=("library", "mine:net"),
        features=("hog",),
        smallest_noise=1.0,
        smallest_cohort=20,
        rounds_per_day=12,
        promise="suffices",
        unproven=True,
        nonprivate=True,
        budgets={"ward-7": Budget(2.0, 1e-6, Unit.RECORD), "ward-8": Budget(math.inf, 1e-5)},
        total=Budget(3.5, 1e-5),
        records=DeclaredRecords("multi-label", 4, (1, 8, 8), "uint8", (4,), "float32"),
        reply_seconds=20.0,
    )
    assert found.budget == Budget(2.0, 1e-6, Unit.RECORD)
    assert found.place == tmp_path / "state" / "ward-7"


def test_what_is_not_said_is_not_allowed(tmp_path: Path) -> None:
    found = read(tmp_path, LEAST)
    assert found.data == "mine:data" and found.folder == tmp_path
    assert (found.recipes, found.models, found.features) == ((), ("library",), ("library",))
    assert (found.promise, found.budget, found.rounds_per_day) == ("refused", None, None)
    assert found.records is None and found.reply_seconds is None
    assert not (found.shared_keys or found.unproven or found.nonprivate)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[allow]", "[alow]"), "'alow', which nothing here knows. Did you mean 'allow'?"),
        (("client = 3", "clients = 3"), "'clients', which nothing here knows. Did you mean 'client'?"),
        (("client = 3", ""), "[node] lacks client"),
        (("smallest_noise", "smallest_nois"), "Did you mean 'smallest_noise'?"),
        (("client = 3", "client = -1"), "node.client=-1: a whole number of at least 0"),
        (("client = 3", "client = true"), "node.client=True: a whole number"),
        (("client = 3", 'client = "3"'), "node.client='3': a whole number"),
        (("smallest_cohort = 20", "smallest_cohort = 0"), "allow.smallest_cohort=0: a whole number of at least 1"),
        (("smallest_cohort = 20", "smallest_cohort = 2.5"), "allow.smallest_cohort=2.5: a whole number"),
        (("rounds_per_day = 12", "rounds_per_day = 0"), "allow.rounds_per_day=0"),
        (("smallest_noise = 1", "smallest_noise = -1"), "allow.smallest_noise=-1"),
        (("smallest_noise = 1", "smallest_noise = nan"), "allow.smallest_noise=nan"),
        (("smallest_noise = 1", "smallest_noise = inf"), "allow.smallest_noise=inf"),
        (('"suffices"', '"sufices"'), "Did you mean 'suffices'?"),
        (("shared_keys = false", "shared_keys = 0"), "allow.shared_keys=0: true or false"),
        (('"prifedsync"', '"prifedsinc"'), "no recipe 'prifedsinc'. Did you mean 'prifedsync'?"),
        (('["hog"]', '"hog"'), "allow.features='hog': a list of names"),
        (('["hog"]', "[1]"), "allow.features=[1]: a list of names"),
        (("epsilon = 2\n", "epsilon = 0\n"), "allow.data.ward-7.epsilon=0.0: a budget is positive"),
        (("epsilon = 2\n", "epsilon = nan\n"), "allow.data.ward-7.epsilon=nan: a budget is positive"),
        (("epsilon = 2\n", ""), "[allow.data.ward-7] lacks epsilon"),
        (("delta = 1e-6", "delta = 1"), "delta=1"),
        (("delta = 1e-6", "delt = 1e-6"), "Did you mean 'delta'?"),
        (('"record"', '"records"'), "Did you mean 'record'?"),
        (('name = "ward-7"', 'name = "../ward"'), "'../ward' names no data set"),
        (("[allow.data.ward-8]", '[allow.data."a/b"]'), "'a/b' names no data set"),
        (("[allow.total]", "[allow.all]"), "'all', which nothing here knows"),
        (("[node]", "[node"), "is not TOML"),
        (("reply_seconds = 20", "reply_seconds = 0"), "node.reply_seconds=0"),
        (("reply_seconds = 20", "reply_seconds = inf"), "node.reply_seconds=inf"),
        (('task = "multi-label"', 'tasks = "multi-label"'), "Did you mean 'task'?"),
        (('task = "multi-label"', 'task = "multi-lable"'), "Did you mean 'multi-label'?"),
        (('task = "multi-label"', ""), "[records] lacks task"),
        (("outputs = 4", "outputs = 0"), "records.outputs=0"),
        (("[1, 8, 8]", "8"), "records.input_shape=8: a list of whole numbers"),
        (("[1, 8, 8]", "[1, -8]"), "records.input_shape=[1, -8]"),
        (('"uint8"', '"uint9"'), "records.input_type='uint9'"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    with pytest.raises(BadValue) as refusal:
        read(tmp_path, WHOLE.replace(*change, 1))
    assert words in str(refusal.value) and "node.toml" in str(refusal.value)


def test_a_table_is_a_table(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="allow.data is a int"):
        read(tmp_path, LEAST + "[allow]\ndata = 3\n")
    with pytest.raises(BadValue, match=r"Write a table: \[allow.total\]"):
        read(tmp_path, LEAST + "[allow]\ntotal = 3\n")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        Policy.from_toml(tmp_path / "node.toml")


def test_a_line_of_the_log_is_short_whatever_a_server_writes(tmp_path: Path) -> None:
    file_log(tmp_path / "log")("refused: " + "x" * 10**6)
    assert len((tmp_path / "log").read_text()) < 2100
