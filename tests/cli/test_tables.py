"""`--data FILE.csv`: from a table to a guarantee, and back to the run that it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sfumato import Columns, Population, budgets, classification, simulate
from sfumato.data.columns import read_columns
from sfumato.errors import SfumatoError
from sfumato.key import Key
from sfumato.ledger.basis import FROM_RELEASES
from sfumato.run.prepare import prepare
from sfumato.run.request import DataRequest, Request
from tests.cli.conftest import Command
from tests.helpers import dp_round

COLUMNS = """
client = "clinic"
target = "ill"
classes = ["no", "yes"]
[categories]
sex = ["f", "m"]
[scale]
age = [0, 100]
admitted = [2020-01-01, 2026-01-01]
"""
WORDS = ["--columns", "columns.toml", "--lr", "1", "--rounds", "2", "--quiet"]


def lines(count: int, seed: int) -> str:
    key = Key.from_seed(seed)
    ages, clinics = ((key.child(word).integers(count) % 80 + 10).tolist() for word in ("age", "clinic"))
    rows = (
        f"clinic {who % 30:02},{age},{'fm'[age % 2]},202{age % 6}-03-01,{'yes' if age > 50 else 'no'}\n"
        for who, age in zip(clinics, ages, strict=True)
    )
    return "clinic,age,sex,admitted,ill\n" + "".join(rows)


@pytest.fixture
def clinics(sfumato: Command) -> Command:
    Path("clinics.csv").write_text(lines(300, 0))
    Path("test.csv").write_text(lines(200, 1))
    Path("columns.toml").write_text(COLUMNS)
    return sfumato


def summary(folder: str) -> dict[str, Any]:
    return json.loads((Path(folder) / "run.json").read_text())  # type: ignore[no-any-return]


def test_a_table_trains_goes_on_and_is_asked_for_again(clinics: Command) -> None:
    words = ["--data", "clinics.csv", "--test-data", "test.csv", *WORDS, "--noise-multiplier", "1"]
    assert clinics("train", *words, "--clients", "40", "--out", "a") == (0, "", "")
    found = summary("a")
    assert (found["population"], found["data"], found["outputs"], found["input_shape"]) == (40, "clinics", 2, [4])
    assert found["accuracy"] > 0.6 and not any("number of clients" in one for one in found["assumptions"])
    assert clinics("train", "--resume", "a", "--rounds", "3", "--quiet") == (0, "", "")
    assert summary("a")["rounds"] == 3 and summary("a")["epsilon"] > found["epsilon"]
    assert clinics("evaluate", "a").status == 0 and clinics("ledger", "a/ledger.sqlite").status == 0
    assert clinics("train", "--config", "a/run.toml", "--seed", "0", "--quiet", "--out", "b") == (0, "", "")
    Path("clinics.csv").write_text(lines(300, 0).replace("clinic 07", "clinic 99"))
    refused = clinics("train", "--resume", "a", "--rounds", "5", "--quiet")
    assert refused.status == 2 and "holds another run" in refused.err, "other people"


VOTING = ["--data", "clinics.csv", "--public", "public.csv", "--columns", "columns.toml", "--delta", "1e-2", "--quiet"]


def test_clients_of_a_table_vote_on_a_public_one(clinics: Command) -> None:
    """Rows of it are asked about, others tested on; what voting costs is what it costs for any other records."""
    Path("public.csv").write_text(lines(200, 2))
    asked = ["--queries", "20", "--stddev", "5", "--clients", "30", "--rounds", "1"]
    for recipe in ("knn-fl", "pate-fl"):
        assert clinics("train", recipe, *VOTING, *asked, "--out", recipe) == (0, "", "")
        found = summary(recipe)
        assert found["accuracy"] > 0.6 and found["epsilon"] > 0
        assert any("public.csv" in one and "public" in one for one in found["assumptions"])
        named = ["--data", "digits", "--public-records", "300", *asked, "--delta", "1e-2", "--quiet"]
        assert clinics("train", recipe, *named, "--out", f"{recipe}-digits").status == 0
        assert summary(f"{recipe}-digits")["epsilon"] == found["epsilon"], "one source"
    assert clinics("train", "knn-fl", *VOTING, *asked, "--test-data", "test.csv", "--out", "tested") == (0, "", "")
    assert clinics("evaluate", "tested").status == 0
    refused = clinics("train", "knn-fl", *VOTING[:2], *VOTING[4:], *asked)
    assert refused.status == 2 and "public" in refused.err


def test_public_rows_are_split_or_kept_whole_and_never_the_clients(clinics: Command) -> None:
    Path("public.csv").write_text(lines(200, 2))

    def found(recipe: str, **data: Any) -> Any:
        named = {"name": "clinics.csv", "public": "public.csv", "columns": read_columns("columns.toml")}
        options = {"queries": 20} if recipe == "knn-fl" else {}
        return prepare(Request(recipe=recipe, data=DataRequest(**{**named, **data}), options=options, delta=1e-2))

    split = found("knn-fl")
    assert (split.public.records.count, split.test.records.count) == (140, 60)
    assert split.public.name == "public.csv/public" and split.test.name == "public.csv/test"
    whole = found("knn-fl", test="test.csv")
    assert (whole.public.records.count, whole.test.records.count) == (200, 200)
    assert found("dp-fedavg").public is None, "columns only learn from it"
    learnt = found("dp-fedavg", features="pca:2")
    assert learnt.population.client(0).train.x.shape[1] == 2
    assert any("public.csv" in one for one in learnt.population.caution("client"))
    with pytest.raises(SfumatoError, match="holds the rows of"):
        found("knn-fl", public="clinics.csv")


def test_a_count_that_nobody_declared_is_an_assumption_and_stays_one(clinics: Command) -> None:
    assert clinics("train", "--data", "clinics.csv", *WORDS, "--noise-multiplier", "1", "--out", "a") == (0, "", "")
    said = "the number of clients is public: 30, as 'clinics' has them"
    assert summary("a")["population"] == 30 and said in summary("a")["assumptions"]
    assert clinics("train", "--resume", "a", "--rounds", "3", "--quiet").status == 0
    assert said in summary("a")["assumptions"], "resuming declares nothing"
    assert clinics("train", "--config", "a/run.toml", "--quiet", "--out", "b").status == 0
    assert said in summary("b")["assumptions"]
    assert clinics("train", "--config", "a/run.toml", "--clients", "30", "--quiet", "--out", "c").status == 0
    assert said not in summary("c")["assumptions"]


def test_ids_that_are_declared_let_people_come_and_go(clinics: Command) -> None:
    ids = json.dumps([f"clinic {number:02}" for number in range(35)])
    words = ["--data", "clinics.csv", *WORDS, "--noise-multiplier", "1", "--set", f"data.columns.clients={ids}"]
    assert clinics("train", *words, "--ledger", "all.sqlite", "--out", "a") == (0, "", "")
    assert summary("a")["population"] == 35
    assert summary("a")["assumptions"] == [
        "exact real-number arithmetic (floating point is not covered)",
        "the server is trusted",
        FROM_RELEASES,
        "who takes part in a round stays secret from the observer",
    ], "nothing about who the clients are"
    Path("clinics.csv").write_text("".join(line for line in lines(300, 0).splitlines(True) if "clinic 07" not in line))
    assert clinics("train", *words, "--ledger", "all.sqlite", "--out", "b") == (0, "", "")
    refused = clinics("train", *words, "--clients", "36")
    assert refused.status == 2 and "Leave --clients out" in refused.err


def test_budgets_by_id_say_that_the_ids_are_public_unless_declared(clinics: Command) -> None:
    given = '[default]\nepsilon = 4.0\ndelta = 1e-3\n[[own]]\nclients = ["clinic 07"]\nepsilon = 1.0\n'
    Path("budgets.toml").write_text(given)
    words = ["--data", "clinics.csv", *WORDS, "--budgets", "budgets.toml"]
    assert clinics("train", *words, "--clients", "30", "--out", "a") == (0, "", "")
    assert any(one.startswith("which clients there are is public") for one in summary("a")["assumptions"])
    ids = json.dumps([f"clinic {number:02}" for number in range(30)])
    assert clinics("train", *words, "--set", f"data.columns.clients={ids}", "--out", "b") == (0, "", "")
    assert not any("is public" in one for one in summary("b")["assumptions"])


def test_settings_of_single_clients_say_so_wherever_they_come_from(clinics: Command) -> None:
    people = Population.from_table("clinics.csv", Columns.of_table(read_columns("columns.toml")), clients=40)
    given = {"default": (4.0, 1e-3), "clinic 07": (1.0, 1e-3)}
    plain = dp_round()
    planned = budgets(plain, given, rounds=1, population=people)
    said = []
    for round in (plain, planned):
        *_, last = simulate(round, people, "logistic", classification(2), rounds=1, seed=0)
        said.append(any("settings go by their numbers" in one for one in last.guarantee(1e-3).assumptions))
    assert said == [False, True]


def test_public_rows_teach_what_is_not_declared(clinics: Command) -> None:
    words = ["--data", "clinics.csv", "--client-column", "clinic", "--target-column", "ill", "--public", "test.csv"]
    words += [
        "--set",
        'data.columns.scale.admitted=["2020-01-01", "2026-01-01"]',
        "--rounds",
        "1",
        "--noise-multiplier",
        "1",
    ]
    status, _, err = clinics("train", *words, "--out", "a")
    assert status == 0, err
    assert "the records of test.csv are public: nothing hides them" in summary("a")["assumptions"]


def test_one_holder_of_a_table(clinics: Command) -> None:
    words = ["dp-sgd", "--data", "clinics.csv", *WORDS, "--records", "300", "--epsilon", "3", "--delta", "1e-4"]
    assert clinics("train", *words, "--out", "a") == (0, "", "")
    assert summary("a")["unit"] == "record" and summary("a")["input_shape"] == [4], "the client is no input"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--data clinic.csv --columns columns.toml", "there is no file clinic.csv"),
        ("--data clinic.csv", "there is no file clinic.csv"),
        ("--data clinics.csv", "--target-column NAME"),
        ("--data clinics.csv --target-column ill", "--client-column NAME"),
        ("--data clinics.csv --target-column il --client-column clinic --outputs 2", "Did you mean 'ill'?"),
        ("--data clinics.csv --target-column ill --client-column clinik", "Did you mean 'clinic'?"),
        ("--data clinics.csv --target-column age --client-column clinic --features resize:8", "column 'sex'"),
        ("--data clinics.csv --columns columns.toml --set data.columns.scales.age=[0,1]", "Did you mean 'scale'?"),
        ("--data clinics.csv --columns columns.toml --outputs 5", "2 classes are declared"),
        ("--data clinics.csv --columns columns.toml --clients 20", "Declare at least 30"),
        ("--data clinics.csv --columns columns.toml --split shards:2", "come with their clients"),
        ("--data clinics.csv --columns columns.toml --task next-character", "a table's task is"),
        ("--data clinics.csv --columns columns.toml --test-data hers:x", "give a table with the same columns"),
        ("--data clinics.csv --columns nowhere.toml", "cannot be read"),
        ("--data clinics.csv --columns clinics.csv", "are not TOML"),
        ("--data digits --client-column a", "only a table has"),
        ("--data empty.csv --columns columns.toml", "is empty"),
        ("--data clinics.csv --client-column clinic --target-column sex,ill", "--task multi-label"),
    ],
)
def test_what_a_table_lacks_is_said_before_anything_is_written(words: str, said: str, clinics: Command) -> None:
    Path("empty.csv").write_text("")
    status, _, err = clinics("train", *words.split(), "--rounds", "2", "--noise-multiplier", "1")
    assert status == 2 and said in err, err
    assert not Path("runs").exists()


def test_a_worker_elsewhere_reads_the_table_for_itself(clinics: Command) -> None:
    columns = Columns.of_table(read_columns("columns.toml")).to_table()
    for clients in (0, 40):
        prepared = prepare(Request(data=DataRequest("clinics.csv", clients=clients, columns=columns), epsilon=2.0))
        assert prepared.population.origin is not None
        there = prepared.population.origin.build()
        assert (there.size, there.identity) == (clients or 30, prepared.population.identity)
        assert there.caution("client") == prepared.population.caution("client")


def test_a_run_from_python_on_a_table_goes_on_from_the_shell(clinics: Command) -> None:
    columns = Columns.of_table(read_columns("columns.toml"))
    population = Population.from_table("clinics.csv", columns)
    run = simulate(dp_round(), population, "logistic", classification(2), rounds=2, folder="a")
    assert len(list(run)) == 2
    said = summary("a")["assumptions"]
    assert any("the number of clients is public: 30" in one for one in said)
    assert clinics("train", "--resume", "a", "--rounds", "3", "--quiet") == (0, "", "")
    resumed = summary("a")
    assert set(said) < set(resumed["assumptions"]) and resumed["rounds"] == 3
    assert any("no copy of the run's folder was resumed too" in one for one in resumed["assumptions"])


@pytest.mark.parametrize("option", ["--test-data", "--public"])
def test_the_clients_own_rows_are_not_taken_for_public_ones(option: str, clinics: Command) -> None:
    Path("copy.csv").write_bytes(Path("clinics.csv").read_bytes())
    for other in ("clinics.csv", "copy.csv"):
        refused = clinics("train", "--data", "clinics.csv", option, other, *WORDS, "--out", "a")
        assert refused.status == 2 and "nothing hides it" in refused.err and not Path("a").exists()


def test_who_is_there_is_told_to_a_server_that_sees_messages_by_number(clinics: Command) -> None:
    words = ["udp-fl", "--data", "clinics.csv", *WORDS, "--noise-multiplier", "1", "--delta", "0.001"]
    assert clinics("train", *words, "--clients", "40", "--out", "found").status == 0
    ids = ", ".join(f'"clinic {number:02}"' for number in range(40))
    Path("columns.toml").write_text(f"clients = [{ids}]\n{COLUMNS}")
    assert clinics("train", *words, "--out", "declared").status == 0
    said = [(Path(name) / "run.json").read_text().count("number the messages") > 0 for name in ("found", "declared")]
    assert said == [True, False]
