"""Certificates that TLS takes, keys that Flower takes, and files that only their owner can read."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_private_key

from sfumato.errors import BadValue
from sfumato.federation.certificates import (
    Authority,
    ServerCertificate,
    make_authority,
    make_node_key,
    make_server_certificate,
    private_folder,
    public_line,
    public_pem,
    write_private,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("one") / "authority")


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> ServerCertificate:
    return make_server_certificate(tmp_path_factory.mktemp("two") / "server", authority, ["example.org", "10.0.0.7"])


def shake_hands(server: ServerCertificate, authority: Path, name: str) -> None:
    """A TLS handshake in memory, as a node would begin it."""
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_verify_locations(authority)
    theirs.load_cert_chain(server.certificate, server.key)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    node = ours.wrap_bio(back, there, server_hostname=name)
    link = theirs.wrap_bio(there, back, server_side=True)
    waiting = [node, link]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass


@pytest.mark.parametrize("name", ["example.org", "10.0.0.7"])
def test_a_server_is_known_under_its_names(authority: Authority, server: ServerCertificate, name: str) -> None:
    shake_hands(server, authority.certificate, name)


def test_a_server_is_not_known_under_another_name(authority: Authority, server: ServerCertificate) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, authority.certificate, "example.com")


def test_another_authority_does_not_vouch_for_it(server: ServerCertificate, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, make_authority(tmp_path / "other").certificate, "example.org")


def test_a_certificate_runs_out(authority: Authority, tmp_path: Path) -> None:
    old = make_server_certificate(tmp_path, authority, ["localhost"], days=0)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(old, authority.certificate, "localhost")


def test_private_files_are_private(authority: Authority, server: ServerCertificate, tmp_path: Path) -> None:
    node = make_node_key(tmp_path / "new" / "node.key")
    for path in (authority.key, server.key, node.private):
        assert mode(path) == 0o600
        assert mode(path.parent) == 0o700
    for path in (authority.certificate, server.certificate, server.authority):
        assert mode(path) == 0o644
        assert b"PRIVATE" not in path.read_bytes()


def test_a_file_is_private_even_where_an_open_one_was(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("open to all")
    path.chmod(0o644)
    assert write_private(path, b"x").read_bytes() == b"x"
    assert mode(path) == 0o600


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        write_private(tmp_path / "link", b"x")


def test_an_open_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(BadValue, match="open to others"):
        private_folder(folder)
    assert mode(folder) == 0o755
    assert mode(private_folder(tmp_path / "new" / "one")) == 0o700


def test_a_node_key_is_what_flower_takes(tmp_path: Path) -> None:
    node = make_node_key(tmp_path / "node.key")
    private = load_ssh_private_key(node.private.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP384R1)
    assert public_line(node.private) == node.public
    assert load_pem_public_key(public_pem(node.public + " somebody@somewhere")) == private.public_key()


def test_what_is_no_key_is_said(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "text").write_text("not a key")
    with pytest.raises(BadValue, match="no private key"):
        public_line(tmp_path / "text")
    with pytest.raises(BadValue, match="no public key"):
        public_pem("ecdsa-sha2-nistp384 AAAA")
    with pytest.raises(BadValue, match="another kind"):
        public_pem("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7U2K1iUlDpJ1nXTQ8nDSOUkcJ0dUPFJpnUzkGYLpHt")
