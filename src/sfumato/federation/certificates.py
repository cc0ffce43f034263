"""Certificates and keys for a federation: an authority of its own, the server's certificate, and a pair of keys for each node.

They are made here for trials and tests, and are good enough for a federation among owners who trust whoever made them: whoever
holds the authority's key can pose as the server, and whoever holds a node's key as that node. Owners who do not trust the maker
bring a server certificate of a public authority and make their own node keys (`make_node_key` on their own host; only the
public line leaves it). Private files can be read by their owner only, and so can the folders that are made for them.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sfumato.errors import BadValue

_DAYS = 365


@dataclass(frozen=True)
class Authority:
    """The files of a certificate authority, and what it signs for a server."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class ServerCertificate:
    """The files of a server: its certificate and key, and the authority's certificate that nodes need to know."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True)
class NodeKey:
    """The private file of a node, and the line by which the server knows it."""

    private: Path
    public: str


def private_folder(folder: Path) -> Path:
    """A folder that only its owner may enter, made if need be; one that others may enter is refused, not changed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (mode := folder.stat().st_mode) & 0o077:
        raise BadValue(
            f"{folder} is open to others (mode {mode & 0o777:o}). Name a new folder, or run chmod 700 {folder}."
        )
    return folder


def write_private(path: Path, content: bytes) -> Path:
    """A file that only its owner may read, from its first byte on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(content)
    return path


def make_authority(folder: Path, days: int = _DAYS) -> Authority:
    """A new authority: `authority.pem` may be given to anybody, `authority.key` to nobody."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Sfumato federation")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _unsigned(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA384())
    )
    return Authority(
        _write_public(folder / "authority.pem", certificate.public_bytes(serialization.Encoding.PEM)),
        write_private(folder / "authority.key", _pem(key)),
    )


def make_server_certificate(
    folder: Path, authority: Authority, hosts: Sequence[str], days: int = _DAYS
) -> ServerCertificate:
    """A certificate for a server that nodes reach under these names or addresses."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    signer = serialization.load_pem_private_key(authority.key.read_bytes(), None)
    issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise BadValue(f"{authority.key} holds no elliptic-curve key. Make an authority with make_authority.")
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Sfumato server")])
    certificate = (
        _unsigned(subject, issuer.subject, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([_host(name) for name in dict.fromkeys(hosts)]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    return ServerCertificate(
        _write_public(folder / "server.pem", certificate.public_bytes(serialization.Encoding.PEM)),
        write_private(folder / "server.key", _pem(key)),
        _write_public(folder / "authority.pem", authority.certificate.read_bytes()),
    )


def make_node_key(path: Path) -> NodeKey:
    """A new pair of keys of a node, as Flower's SuperNode wants them: OpenSSH, on the curve P-384."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return NodeKey(write_private(path, text), _line(key.public_key()))


def make_signing_key(path: Path) -> str:
    """A new key that a node signs with in a secure sum; what others know it by, as hexadecimal digits."""
    key = Ed25519PrivateKey.generate()
    write_private(path, key.private_bytes_raw())
    return key.public_key().public_bytes_raw().hex()


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    """The key in a node's private file."""
    try:
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    except (OSError, ValueError):
        raise BadValue(f"{path} holds no signing key of a node. sfumato node key makes one.") from None


def public_line(path: Path) -> str:
    """The line by which a server knows the node that holds this private file."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadValue(f"{path} holds no private key of a node. Make one with make_node_key.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadValue(f"{path} holds a key of another kind than a node's. Make one with make_node_key.")
    return _line(key.public_key())


def public_pem(line: str) -> bytes:
    """A node's public key as SuperLink compares it; two lines of one key with different comments are the same."""
    try:
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadValue(f"{line!r:.80} is no public key of a node: it starts with ecdsa-sha2-nistp384.") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadValue(f"{line!r:.80} is a key of another kind than a node's: it starts with ecdsa-sha2-nistp384.")
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks of other hosts may be behind
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _line(key: ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def _write_public(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o644)
    return path
