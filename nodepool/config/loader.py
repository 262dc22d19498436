# SPDX-License-Identifier: Apache-2.0
"""Loads the configuration file and the secure file (reference/configuration 1).

Nothing but `nodepool.exceptions.ConfigError` leaves these functions for a bad file. Schemas and drivers are
imported when a whole configuration is loaded, not for the ZooKeeper part that commands need.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from nodepool.config.problems import Document, Problems, Severity, parse, read, show
from nodepool.config.zookeeper import ZooKeeperSettings, read_zookeeper
from nodepool.exceptions import ConfigError

if TYPE_CHECKING:
    from nodepool.config.assembly import CheckedSections
    from nodepool.config.objects import Config

log = logging.getLogger("nodepool.config")


def load_config(
    path: str, secure_path: str | None = None, *, complete: bool = True, checked: CheckedSections | None = None
) -> Config:
    """Load a configuration. Imports the drivers that it names. Blocks about a second if there is no such file.

    :param complete: False: what a secure file may have, and what is not installed here, need not be there.
    :param checked: what earlier loads have checked.
    :raises ConfigError: every problem, one a line, with file and line.
    """
    from nodepool.config.assembly import assemble

    problems = Problems()
    main, secure = read_documents(path, secure_path, problems)
    config = assemble(main, secure, secure_given=secure_path is not None, checked=checked)
    if not complete:
        problems.change(Severity.INCOMPLETE, Severity.WARNING)
    problems.finish(log)
    return config


def load_zookeeper(path: str, secure_path: str | None = None) -> ZooKeeperSettings:
    """Load only how to connect to ZooKeeper; the rest of the file must be YAML, but may be wrong.

    :raises ConfigError: see `load_config`.
    """
    problems = Problems()
    main, secure = read_documents(path, secure_path, problems)
    problems.found.clear()
    settings = ZooKeeperSettings()
    read_zookeeper(settings, main, secure, secure_given=secure_path is not None)
    problems.finish(log)
    return settings


def load_images(path: str, secure_path: str | None = None) -> Config:
    """Load how to connect to ZooKeeper, and the images; no driver is imported, and no provider is looked at.

    :raises ConfigError: see `load_config`.
    """
    from nodepool.config.assembly import assemble_images

    problems = Problems()
    main, secure = read_documents(path, secure_path, problems)
    config = assemble_images(main, secure, secure_given=secure_path is not None)
    problems.finish(log)
    return config


def read_documents(path: str, secure_path: str | None, problems: Problems) -> tuple[Document, Document | None]:
    """Read and parse both files.

    :return: the main file, a mapping; the secure file, a mapping, or None if there is none or it is empty.
    :raises ConfigError: a file cannot be read, is not YAML, or is something else than a mapping.
    """
    reasons: list[str] = []
    cause: BaseException | None = None
    documents: list[Document | None] = []
    for name, may_be_empty in ((path, False), (secure_path, True)):
        try:
            documents.append(None if name is None else _document(name, problems, may_be_empty))
        except ConfigError as error:
            reasons.append(str(error))
            cause = cause or error.__cause__
    if reasons:
        raise ConfigError("\n".join(reasons)) from cause
    main, secure = documents
    assert main is not None
    return main, secure


def _document(path: str, problems: Problems, may_be_empty: bool) -> Document | None:
    document = parse(read(path), problems)
    if isinstance(document.data, dict):
        return document
    if document.data is None:
        if may_be_empty:
            return None
        raise ConfigError(f"{path}: the file is empty; a mapping with keys such as providers is needed")
    raise ConfigError(
        f"{path}: the file must be a mapping with keys such as providers, but it is {show(document.data)}"
    )


class ConfigSource:
    """A configuration file, its secure file and what drivers read beside; parsed only when one of them changed."""

    def __init__(self, path: str, secure_path: str | None = None) -> None:
        self._paths = [name for name in (path, secure_path) if name is not None]
        self._path = path
        self._secure_path = secure_path
        #: Files that drivers read, see `Config.watched_files`.
        self._watched: list[str] = []
        self._loaded: tuple[_Times | None, ...] | None = None
        self._checked: CheckedSections = {}

    def files(self) -> list[str]:
        """Paths of all that `changed` looks at; a file may be missing."""
        return [*self._paths, *self._watched]

    def changed(self) -> bool:
        """Is it time for another `load`? Does not parse.

        True when a time of a file is not what it was at the last load, whether that went well or not.
        """
        return self._times() != self._loaded

    def load(self) -> Config:
        """Load both files. Raises ConfigError."""
        # First: a change while we read is seen by the next `changed`.
        self._loaded = self._times()
        config = load_config(self._path, self._secure_path, checked=self._checked)
        watched = sorted(config.watched_files)
        if watched != self._watched:
            self._watched = watched
            self._loaded = (*self._loaded[: len(self._paths)], *map(_times_of, watched))
        return config

    def _times(self) -> tuple[_Times | None, ...]:
        return tuple(map(_times_of, self.files()))


#: When the content of a file changed, and when anything of it, such as who may read it, in nanoseconds.
_Times = tuple[int, int]


def _times_of(path: str) -> _Times | None:
    """None = no such file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_ctime_ns
