# SPDX-License-Identifier: Apache-2.0
"""Why a server of ZooKeeper cannot be used: the cause, and a sentence with server, key and remedy.

Nothing here blocks. If our own TLS files are the cause, they are read, to find out which of them: the last part.
"""

from __future__ import annotations

import enum
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

#: What says nothing: ``(_ssl.c:1006)`` at the end of OpenSSL's texts, and a number or a second name at their beginning.
_NOISE: Final = re.compile(r"\s*\(_ssl\.c:\d+\)$|^\[[^\]]*\] ")


class ServerPlace(NamedTuple):
    """One entry of ``zookeeper-servers``."""

    host: str
    port: int


class ConnectStep(enum.Enum):
    """How far an attempt to connect came. The order counts: a later one says more."""

    RESOLVE = 1
    CONNECT = 2
    TLS_FILES = 3
    HANDSHAKE = 4
    SESSION = 5


class Cause(enum.Enum):
    """Why an attempt failed: what an operator is shown of it behind the server's name, and what to do.

    ``text`` is what the system, OpenSSL or Kazoo reports, ``place`` the entry of ``zookeeper-servers``; the others are
    files of ``zookeeper-tls``.
    """

    UNKNOWN_NAME = "the name cannot be resolved ({text}); correct {place}.host, or the name service"
    REFUSED = "connection refused, nothing listens on this port; correct {place}.host and port, or start ZooKeeper"
    UNREACHABLE = "cannot be reached ({text}); correct {place}.host, or look at network and firewall"
    SILENT = "no answer ({text}); correct {place}, or look at the server and at firewalls"
    TLS_FILES = "zookeeper-tls: cert, key and ca cannot be used ({text}); compare {cert}, {key}, {ca}"
    NO_TLS = "does not speak TLS on this port ({text}); {place}.port must be the secureClientPort of ZooKeeper"
    SERVER_CERTIFICATE = (
        "its certificate is not accepted ({text}); zookeeper-tls.ca ({ca}) "
        "must hold the CA that issued the server's certificate, which must be valid now"
    )
    CLIENT_CERTIFICATE = (
        "it does not accept our certificate ({text}); zookeeper-tls.cert ({cert}) must be valid now, "
        "and issued by a CA of the server's trust store (ssl.trustStore.location)"
    )
    HANDSHAKE = "the TLS handshake failed ({text}); compare zookeeper-tls with the TLS settings of the server"
    NEEDS_TLS = "closed the connection ({text}); if this is its secureClientPort, set zookeeper-tls: cert, key and ca"
    NOT_SERVING = "accepts connections, but does not serve ({text}); look at its log: has it lost the other servers?"


#: Causes that last until an operator changes a configuration or a certificate.
LASTING: Final = frozenset({Cause.TLS_FILES, Cause.SERVER_CERTIFICATE, Cause.CLIENT_CERTIFICATE})


@dataclass(frozen=True)
class ConnectFailure:
    """One attempt to connect to one server that failed.

    :param error: what the system, OpenSSL or Kazoo said.
    """

    stage: ConnectStep
    error: BaseException

    @property
    def text(self) -> str:
        """What was said, without the places in the source of OpenSSL."""
        error = self.error
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _NOISE.sub("", str(reason)).strip() or type(error).__name__


def cause_of(failure: ConnectFailure, *, tls: bool) -> Cause:
    """Classify a failure.

    :param tls: did we speak TLS?
    """
    match failure.stage, failure.error:
        case ConnectStep.RESOLVE, _:
            return Cause.UNKNOWN_NAME
        case ConnectStep.TLS_FILES, _:
            return Cause.TLS_FILES
        case ConnectStep.CONNECT, ConnectionRefusedError():
            return Cause.REFUSED
        case _, ssl.SSLCertVerificationError():
            return Cause.SERVER_CERTIFICATE
        case _, ssl.SSLError() as error:
            return _tls_error(error)
        case _, TimeoutError():
            return Cause.SILENT
        case ConnectStep.CONNECT, _:
            return Cause.UNREACHABLE
        case ConnectStep.HANDSHAKE, _:
            # ZooKeeper takes the first bytes of TLS for the length of a packet, and closes the connection.
            return Cause.NO_TLS
    return Cause.NOT_SERVING if tls else Cause.NEEDS_TLS


def _tls_error(error: ssl.SSLError) -> Cause:
    reason = f"{error.reason or ''} {error}".upper().replace(" ", "_")
    if "WRONG_VERSION_NUMBER" in reason or "UNKNOWN_PROTOCOL" in reason or "PACKET_LENGTH" in reason:
        return Cause.NO_TLS
    # An alert is the server's: it has seen our certificate. The names of all alerts on certificates have one of these.
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "ACCESS_DENIED" in reason):
        return Cause.CLIENT_CERTIFICATE
    return Cause.HANDSHAKE


def furthest(failures: Mapping[str, ConnectFailure]) -> ConnectFailure:
    """Of the failures with the addresses of one server: that which says most."""
    return max(failures.values(), key=lambda failure: failure.stage.value)


def sentence(server: ServerPlace, index: int, failure: ConnectFailure, files: TlsFiles | None) -> str:
    """One line for an operator, e.g. ``ZooKeeper zk1.example.com:2281 (zookeeper-servers[0]): no answer ...``.

    :param index: position of the server in ``zookeeper-servers``.
    :param files: of our side of TLS; None: we do not speak TLS.
    """
    host = f"[{server.host}]" if ":" in server.host else server.host
    place = f"zookeeper-servers[{index}]"
    cause = cause_of(failure, tls=files is not None)
    found = check_tls_files(files) if files is not None and cause is Cause.TLS_FILES else ()
    wrong = "; ".join(f"zookeeper-tls.{problem.name}: {problem.text}" for problem in found)
    cert, key, ca = files or ("", "", "")
    happened = wrong or cause.value.format(text=failure.text, place=place, cert=cert, key=key, ca=ca)
    return f"ZooKeeper {host}:{server.port} ({place}): {happened}"


def sentences(
    servers: Sequence[ServerPlace],
    failures: Mapping[ServerPlace, Mapping[str, ConnectFailure]],
    files: TlsFiles | None,
) -> list[str]:
    """A `sentence` for each server whose last attempts failed, in the order of ``zookeeper-servers``."""
    return [
        sentence(server, index, furthest(failures[server]), files)
        for index, server in enumerate(servers)
        if failures.get(server)
    ]


def is_hopeless(
    servers: Sequence[ServerPlace], failures: Mapping[ServerPlace, Mapping[str, ConnectFailure]], files: TlsFiles | None
) -> bool:
    """Was each server tried, and did each fail for a `LASTING` cause?"""
    return bool(servers) and all(
        failures.get(server) and cause_of(furthest(failures[server]), tls=files is not None) in LASTING
        for server in servers
    )


# What is wrong with the PEM files of ``zookeeper-tls``: which file, which key, and what to do.

_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_TRUSTED_CERTIFICATE: Final = b"-----BEGIN TRUSTED CERTIFICATE-----"
_PRIVATE_KEY: Final = b"PRIVATE KEY-----"
#: In the first line of a key (PKCS #8), or in the second one (older forms).
_ENCRYPTED: Final = (b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")


class TlsFiles(NamedTuple):
    """Paths of the PEM files of ``zookeeper-tls``."""

    cert: str
    key: str
    ca: str


@dataclass(frozen=True)
class FileProblem:
    """What is wrong with one file.

    :param name: of the key below ``zookeeper-tls``: ``cert``, ``key`` or ``ca``.
    :param text: with the path and the remedy.
    :param readable: the file is there, and may be read by this user: it is its content that is wrong.
    """

    name: str
    text: str
    readable: bool


def check_tls_files(files: TlsFiles) -> list[FileProblem]:
    """Everything that keeps these files from being used. Reads them; contacts nobody."""
    problems: list[FileProblem] = []
    contents: dict[str, bytes] = {}
    for name, path in (("cert", files.cert), ("key", files.key), ("ca", files.ca)):
        try:
            with open(path, "rb") as file:
                contents[name] = file.read()
        except (OSError, ValueError) as error:
            problems.append(FileProblem(name, _unreadable(path, error), False))
    wrong = {name: text for name in contents if (text := _content(name, contents[name], getattr(files, name)))}
    problems += [FileProblem(name, text, True) for name, text in wrong.items()]
    if {"cert", "key"} <= contents.keys() - wrong.keys() and (text := _pair(files)):
        problems.append(FileProblem("key", text, True))
    return problems


def _unreadable(path: str, error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no file {path}; correct the path, or put the file there"
    if isinstance(error, PermissionError):
        return f"{path} may not be read by this user (uid {os.geteuid()}); change its owner, group or mode"
    if isinstance(error, IsADirectoryError):
        return f"{path} is a directory, a PEM file is needed"
    return f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"


def _content(name: str, content: bytes, path: str) -> str:
    """What is wrong with one file for itself; empty = nothing."""
    certificate = _CERTIFICATE in content or _TRUSTED_CERTIFICATE in content
    if name == "key":
        if any(mark in content for mark in _ENCRYPTED):
            return f"{path} is protected by a pass phrase, which nobody can enter; store the key without one"
        if _PRIVATE_KEY in content:
            return ""
        if certificate:
            return f"{path} is a certificate, not a private key; are cert and key exchanged?"
        return f"{path} is no private key in PEM form"
    if not certificate:
        if _PRIVATE_KEY in content:
            return f"{path} is a private key, not a certificate; are {name} and key exchanged?"
        return f"{path} is no certificate in PEM form"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError:
        return f"{path} is damaged: its certificate cannot be read; is it cut off?"
    return ""


def _pair(files: TlsFiles) -> str:
    """What is wrong with a certificate, which can be read, and its key; empty = nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Without a pass phrase: OpenSSL would ask for one on the terminal.
        context.load_cert_chain(files.cert, files.key, password=lambda: b"")
    except OSError as error:
        if isinstance(error, ssl.SSLError) and "MISMATCH" in (error.reason or ""):
            return f"{files.key} does not belong to the certificate {files.cert}; use the key that it was made with"
        return f"{files.key} is damaged: its private key cannot be read; is it cut off?"
    return ""
