# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a configuration: every problem, with file, line and key."""

from __future__ import annotations

import dataclasses
import enum
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nodepool.exceptions import ConfigError
from nodepool.model.config_keys import did_you_mean as did_you_mean
from nodepool.model.config_keys import names_a_secret

#: Longest piece of a value that a message shows.
MAX_SHOWN: Final = 40
#: Most problems that the text of one error lists, or that are logged.
MAX_REPORTED: Final = 1000
#: Instead of a value that is not shown.
HIDDEN: Final = "something else"


class Severity(enum.Enum):
    """How bad a problem is."""

    #: The file is refused.
    ERROR = "error"
    #: Correct, but this machine lacks something: a daemon cannot work with it. For ``config-validate`` without a secure
    #: file it is a warning, because a file may be checked elsewhere.
    INCOMPLETE = "incomplete"
    #: The provider of the section is left out: an error for ``config-validate``; a daemon serves the others.
    PROVIDER_ERROR = "provider error"
    #: Daemons go on, without what they leave out or with another value than is written: an error for
    #: ``config-validate``, a warning for a daemon.
    TOLERATED = "tolerated"
    #: A key that is not known: an error for ``config-validate``, a warning for a daemon.
    UNKNOWN_KEY = "unknown key"
    #: Legal, but probably not meant; or something that could not be checked.
    WARNING = "warning"


#: What a daemon refuses a file for.
_REFUSED: Final = (Severity.ERROR, Severity.INCOMPLETE)


@dataclass(frozen=True)
class Problem:
    """One finding.

    :param line: counted from 1; None = the file as a whole.
    :param key: path of the offending key, e.g. ``providers[0].pools[1].max-servers``; may be empty.
    :param path: the same, part by part.
    :param column: counted from 1; None = it was not looked for.
    """

    file: str
    line: int | None
    key: str
    message: str
    severity: Severity = Severity.ERROR
    path: tuple[Any, ...] = field(default=(), compare=False)
    column: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class Problems:
    """Collects problems while a configuration is read."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(
        self, file: str, line: int | None, path: Sequence[Any], message: str, severity: Severity = Severity.ERROR
    ) -> None:
        """Note a problem.

        :param path: keys and list positions from the top of the file to the offending place.
        """
        # One line each, whatever a driver's message looks like.
        self.found.append(Problem(file, line, key_text(path), " ".join(message.splitlines()), severity, tuple(path)))

    def change(self, before: Severity, after: Severity, start: int = 0) -> None:
        """Make problems of one severity those of another, from a position in ``found`` on."""
        for index, problem in enumerate(self.found[start:], start):
            if problem.severity is before:
                self.found[index] = dataclasses.replace(problem, severity=after)

    def confine(self, start: int) -> list[Problem]:
        """Make errors of the file those of a provider, from a position in ``found`` on; returns them."""
        self.change(Severity.ERROR, Severity.PROVIDER_ERROR, start)
        confined = (problem for problem in self.found[start:] if problem.severity is Severity.PROVIDER_ERROR)
        return list(dict.fromkeys(confined))

    def all(self) -> list[Problem]:
        """Everything that was found, in the order of the lines."""
        # The same value may be reached twice, through a YAML alias.
        return sorted(dict.fromkeys(self.found), key=lambda problem: (problem.file, problem.line or 0))

    def errors(self) -> list[Problem]:
        """What a daemon refuses the file for, in the order of the lines."""
        return [problem for problem in self.all() if problem.severity in _REFUSED]

    def finish(self, log: logging.Logger) -> None:
        """Log what the file is not refused for; raise ConfigError with the errors, one a line, if there is one."""
        errors = self.errors()
        others = [problem for problem in self.all() if problem.severity not in _REFUSED]
        for problem in others[:MAX_REPORTED]:
            log.log(logging.ERROR if problem.severity is Severity.PROVIDER_ERROR else logging.WARNING, "%s", problem)
        if errors:
            lines = [str(problem) for problem in errors[:MAX_REPORTED]]
            if len(errors) > MAX_REPORTED:
                lines.append(f"{errors[-1].file}: {len(errors) - MAX_REPORTED} more problems")
            raise ConfigError("\n".join(lines))


def key_text(path: Sequence[Any]) -> str:
    """A path as a reader writes it: ``providers[0].pools[1].name``."""
    text = ""
    for part in path:
        if isinstance(part, int) and not isinstance(part, bool):
            text += f"[{part}]"
        else:
            name = part if isinstance(part, str) and part and part.isprintable() else repr(part)
            text += f".{name}" if text else name
    return text


def listing(words: Iterable[object]) -> str:
    """Words for a sentence such as "allowed: a, b, c"."""
    return ", ".join(sorted(str(word) for word in words))


def show(value: object, path: Sequence[Any] = ()) -> str:
    """A value for a message: its kind, and the value itself when it is short and no secret."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple, set)):
        return "a list"
    if names_a_secret(path):
        return HIDDEN
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
