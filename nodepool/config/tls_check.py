# SPDX-License-Identifier: Apache-2.0
"""The files that ``zookeeper-tls`` names: what is wrong with them, and where the configuration names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nodepool.config.problems import Problems, Severity
from nodepool.exceptions import ConfigError
from nodepool.zk.tls_files import TlsFiles, check_tls_files


class TlsSettings(Protocol):
    """The part of the configuration that is looked at."""

    @property
    def zookeeper_tls_cert(self) -> str | None: ...
    @property
    def zookeeper_tls_key(self) -> str | None: ...
    @property
    def zookeeper_tls_ca(self) -> str | None: ...
    @property
    def tls_places(self) -> Mapping[str, tuple[str, int | None]]:
        """Key below ``zookeeper-tls`` -> file and line in which it stands."""


def add_tls_problems(settings: TlsSettings, problems: Problems, unreadable: Severity = Severity.ERROR) -> None:
    """Read the files, and note everything that keeps them from being used. That a key is missing is noted elsewhere.

    :param unreadable: how bad it is that a file is not there, or may not be read by this user.
    """
    cert, key, ca = settings.zookeeper_tls_cert, settings.zookeeper_tls_key, settings.zookeeper_tls_ca
    if not (cert and key and ca):
        return
    for problem in check_tls_files(TlsFiles(cert, key, ca)):
        file, line = settings.tls_places.get(problem.name, ("zookeeper-tls", None))
        severity = Severity.ERROR if problem.readable else unreadable
        problems.add(file, line, ["zookeeper-tls", problem.name], problem.text, severity)


def refuse_bad_tls_files(settings: TlsSettings) -> None:
    """Raises ConfigError: a file of ``zookeeper-tls`` cannot be used. Each is a line, with file, line and key."""
    problems = Problems()
    add_tls_problems(settings, problems)
    errors = problems.errors(strict=True)
    if errors:
        raise ConfigError("\n".join(map(str, errors)))
