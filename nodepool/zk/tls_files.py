# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the PEM files of ``zookeeper-tls``: which file, which key, and what to do."""

from __future__ import annotations

import os
import ssl
from typing import Final, NamedTuple

from nodepool.quick_dataclass import dataclass

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
