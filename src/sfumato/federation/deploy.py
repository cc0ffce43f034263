"""The files of a federation: one folder for the server, one for each owner, and the commands that each of them types.

Everything is made here, also the keys that owners would make for themselves (`sfumato node key`): it is for a trial, and a pattern
for the real thing. Where data are known by name, they are shared out to the nodes as a simulation shares them out to clients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from safetensors.torch import save_file

from sfumato.account import accountant
from sfumato.account.event import why_not_private
from sfumato.calibration import noise_and_clip
from sfumato.data.apart import DeclaredRecords
from sfumato.data.load import NAMES
from sfumato.data.population import Population
from sfumato.derive import UnitDerivation
from sfumato.engine.checkpoint import write_atomically
from sfumato.errors import BadValue
from sfumato.federation.certificates import (
    make_authority,
    make_node_key,
    make_server_certificate,
    make_signing_key,
    private_folder,
)
from sfumato.federation.node.policy import PLAN
from sfumato.federation.node.server import signing_path
from sfumato.federation.server import prepared_for, terms_of
from sfumato.federation.settings import Member, Settings, write_registry
from sfumato.federation.summing import check_summed, is_summed
from sfumato.federation.terms import Agreement
from sfumato.guarantee import rounded_up
from sfumato.pieces.channel import SecureSum
from sfumato.run.clients import clients_of, settled
from sfumato.run.prepare import Prepared
from sfumato.run.request import Request
from sfumato.run.settings_text import toml_value
from sfumato.secure_sum import Power

_HEAD = "# What this node may do with its owner's data. sfumato node check explains it."

_FILES = {"authority": "authority.pem", "key": "node.key", "registry": "registry.toml"}


@dataclass(frozen=True)
class Place:
    """Where the server is reached, and what records have, where that is not known from a data set's name."""

    host: str = "127.0.0.1"
    port: int = 9092
    input_shape: tuple[int, ...] = ()
    input_type: str = "float32"
    target_shape: tuple[int, ...] = ()
    target_type: str = "int64"
    power: str = Power.FOLLOWS.value

    @property
    def record(self) -> tuple[tuple[int, ...], str, tuple[int, ...], str]:
        """The shapes and types of a record's inputs and target."""
        return self.input_shape, self.input_type, self.target_shape, self.target_type


def new_member(name: str, path: Path) -> Member:
    """The keys of a node, in a file and one beside it, and what a registry says of them."""
    return Member(name, make_node_key(path).public, make_signing_key(signing_path(path)))


def deploy(request: Request, nodes: int, out: Path, place: Place) -> tuple[Path, ...]:
    """Write the whole set into a new folder; the node.toml of each node. What is refused leaves nothing behind."""
    if nodes < 2:
        raise BadValue(f"nodes={nodes}: at least 2 nodes, each of them one client.")
    if out.exists() and any(out.iterdir()):
        raise BadValue(f"--out {out} exists already, and is never overwritten. Give another folder.")
    request = replace(request, data=replace(request.data, clients=nodes))
    people = _people(request) if request.data.name in NAMES else None
    place = place if people is None else _shapes(people, place)
    if not place.input_shape:
        raise BadValue(
            f"--data {request.data.name} is with its owners: declare what a record has, e.g. --input-shape 30, and --outputs 2."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        files = _write(request, nodes, made, place, people)
        made.rename(out)
    except BaseException:
        rmtree(made)
        raise
    return tuple(out / file.relative_to(made) for file in files)


def _write(request: Request, nodes: int, out: Path, place: Place, people: Population | None) -> tuple[Path, ...]:
    authority = make_authority(private_folder(out / "authority"))
    server = private_folder(out / "server")
    made = make_server_certificate(server, authority, [place.host])
    members = []
    for number in range(nodes):
        folder = private_folder(out / f"node-{number + 1}")
        members.append(new_member(folder.name, folder / "node.key"))
        write_atomically(folder / "authority.pem", made.authority.read_text())
    for folder in (server, *(out / member.name for member in members)):
        write_registry(folder / "registry.toml", tuple(members))
    table = {
        "registry": "registry.toml", "certificate": made.certificate.name, "key": made.key.name,
        "authority": made.authority.name, "host": place.host, "port": place.port,
        "input_shape": list(place.input_shape), "input_type": place.input_type,
        "target_shape": list(place.target_shape), "target_type": place.target_type, "power": place.power,
    }  # fmt: skip
    settings = Settings.of(table, server)
    prepared = prepared_for(request, settings)
    terms = terms_of(prepared, settings)
    slots = Agreement.of(terms, prepared.public).job.slots
    if is_summed(slots):
        check_summed(slots, settings.power)
    write_atomically(server / "run.toml", replace(request, federation=table).to_toml())
    for folder in (server, *(out / member.name for member in members)):
        write_atomically(folder / "terms.json", terms.text)
    records = DeclaredRecords(terms.task, terms.outputs, *place.record)
    files = tuple(
        _node(out / member.name, number, prepared, place, people, records) for number, member in enumerate(members)
    )
    write_atomically(out / "README.md", _commands(members, place, people is not None))
    return files


def _people(request: Request) -> Population:
    _, source, _ = settled(request, None)
    return clients_of(request, source)


def _shapes(people: Population, place: Place) -> Place:
    """The shapes of a data set known by name, as anybody can look them up."""
    x, y = next(records for records in map(_train, [people] * people.size, range(people.size)) if records.count)
    if place.input_shape:
        raise BadValue("--input-shape is known of a data set with a name. Leave it out.")
    place = replace(place, input_shape=tuple(x.shape[1:]), input_type=str(x.dtype).removeprefix("torch."))
    return replace(place, target_shape=tuple(y.shape[1:]), target_type=str(y.dtype).removeprefix("torch."))


def _train(people: Population, client: int) -> Any:
    return people.client(client).train


def _node(
    folder: Path, number: int, prepared: Prepared, place: Place, people: Population | None, records: DeclaredRecords
) -> Path:
    request = prepared.request
    name = request.data.name.replace("/", "-").replace(":", "-")
    data = private_folder(folder / "data")
    if people is not None:
        client = people.client(number)
        parts = {"x": client.train.x, "y": client.train.y}
        if client.test is not None:
            parts |= {"x_test": client.test.x, "y_test": client.test.y}
        save_file({word: part.contiguous() for word, part in parts.items()}, data / "records.safetensors")
    noise, _ = noise_and_clip(prepared.round)
    primary = prepared.round.derive(
        population=prepared.population.size, dimension=prepared.round.local.message_length(_layout(prepared))
    ).primary
    tables: list[tuple[str, dict[str, Any]]] = [
        ("node", {"client": number, "name": name, "data": "data", "folder": "state"}),
        ("records", {name: list(part) if isinstance(part, tuple) else part for name, part in vars(records).items()}),
        (
            "server",
            {"address": f"{place.host}:{place.port}", **_FILES},
        ),
        (
            "allow",
            {
                "recipes": [request.recipe],
                "smallest_noise": noise or 0.0,
                "smallest_cohort": max(1, math.floor(prepared.round.sample.expected(prepared.population.size))),
                "promise": "suffices" if primary.server is None or _follows(prepared, place) else "refused",
                "basis": PLAN,
            },
        ),
        (f"allow.data.{name}", _budget(primary, request)),
    ]
    text = "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in table.items())
        for name, table in tables
    )
    write_atomically(
        folder / "node.toml",
        f"{_HEAD}\n\n{text}",
    )
    return folder / "node.toml"


def _follows(prepared: Prepared, place: Place) -> bool:
    """Whether owners must believe that the server follows the protocol of a secure sum."""
    return isinstance(prepared.round.channel, SecureSum) and place.power == Power.FOLLOWS.value


def _layout(prepared: Prepared) -> Any:
    from sfumato.update import Layout

    return Layout.of(prepared.module)


def _budget(proof: UnitDerivation, request: Request) -> dict[str, Any]:
    """What this one run may cost, as a node counts it: a promise as the world sees it, what is its own as the server does."""
    view = "world" if proof.server is None else "chooser"
    event = proof.seen(view, request.rounds)
    facts = {"delta": request.chosen_delta, "unit": str(proof.unit)}
    if event is None or why_not_private(event) is not None:
        return {"epsilon": math.inf, **facts}
    return {"epsilon": float(rounded_up(accountant("auto").epsilon(event, request.chosen_delta), 4)), **facts}


def _commands(members: Sequence[Member], place: Place, has_data: bool) -> str:
    lines = ["# A federation of Sfumato", ""]
    lines += [
        f"The server is reached at {place.host}:{place.port}. Each folder goes to its own host, and to nobody else.",
        "",
    ]
    lines += ["| host | folder | command |", "|---|---|---|"]
    lines += [
        f"| {member.name} | `{member.name}/` | `sfumato node --config {member.name}/node.toml` |" for member in members
    ]
    lines += ["| server | `server/` | `sfumato server --config server/run.toml --out runs/real` |", ""]
    if not has_data:
        lines += ["Each owner puts one file with x and y (.npz, .pt or .safetensors) into its folder `data/`.", ""]
    lines += [
        "Would a node take part? `sfumato node check --config node-1/node.toml --terms node-1/terms.json` says so on its host.",
        "",
        "Keys were made here, for a trial: whoever made them can pose as anybody. For the real thing each owner makes its own",
        "(`sfumato node key node.key --name node-1`, after the old files are deleted) and hands round the table that it prints,",
        "which goes in place of the old one into `registry.toml` of the server and of every node.",
        "Against a server that is not trusted to follow the protocol, a node gets it from the owners, and not from the server.",
        "",
    ]
    return "\n".join(lines)
