# SPDX-License-Identifier: Apache-2.0
"""``nodepool config-validate``: finds everything that is wrong with a file (reference/configuration 11).

First the validation, then the columns of problems.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cached_property
from typing import Any, Final

import yaml

from nodepool.config.assembly import DriverError, assemble, call_driver
from nodepool.config.loader import read_documents
from nodepool.config.marks import Document
from nodepool.config.objects import Config
from nodepool.config.problems import Problem, Problems, Severity
from nodepool.config.sections import entries
from nodepool.config.zookeeper import add_tls_problems
from nodepool.exceptions import ConfigError

_PLACE: Final = re.compile(r"(?::(\d+))?(?::(\d+))?: ")


def validate(path: str, secure_path: str | None = None) -> list[Problem]:
    """Check a file. Contacts nothing, but imports the drivers that the file names.

    :param secure_path: its secure file, if there is one.
    :return: every problem, in the order of the lines; the ``str`` of each is a whole message. Those of the severity
        WARNING are no errors: something is legal but odd, or could not be checked.
    :raises ConfigError: a file cannot be read, is not YAML, or no mapping, so that nothing more can be said.
    """
    main, _ = _read(path, secure_path)
    return main.problems.all()


def validate_here(path: str, secure_path: str | None = None) -> list[Problem]:
    """As `validate`, and also the files that the configuration names, such as those of TLS and ``clouds.yaml``.

    That one is not on this machine is a warning: a configuration may be checked elsewhere. So is what the secure file
    or this machine would have to add, if no secure file is given. A file that cannot be read is a problem like others,
    and each has its column.
    """
    try:
        main, config = _read(path, secure_path)
    except ConfigError as error:
        files = [name for name in (path, secure_path) if name is not None]
        return [_problem_of(line, files) for line in str(error).splitlines()]
    if secure_path is None:
        main.problems.change(Severity.INCOMPLETE, Severity.WARNING)
    _check_machine(main, config)
    found = main.problems.all()
    positions = {name: Positions(name) for name in {problem.file for problem in found}}
    return [dataclasses.replace(problem, column=positions[problem.file].column(problem)) for problem in found]


def _read(path: str, secure_path: str | None) -> tuple[Document, Config]:
    main, secure = read_documents(path, secure_path, Problems())
    return main, assemble(main, secure, secure_given=secure_path is not None)


def _check_machine(main: Document, config: Config) -> None:
    add_tls_problems(config, main.problems, Severity.WARNING)
    for index, section in entries(main.data, "providers", "name"):
        provider = config.providers.get(section["name"])
        if provider is None:
            continue
        try:
            found = call_driver("localProblems()", lambda provider: list(provider.localProblems()), provider)
        except DriverError as error:
            found = [("driver", str(error))]
        for key, text in found:
            main.note(["providers", index, key], text, Severity.WARNING)


def _problem_of(line: str, files: list[str]) -> Problem:
    """The problem that a line of a ConfigError tells."""
    for file in files:
        place = _PLACE.match(line, len(file)) if line.startswith(file) else None
        if place is not None:
            number, column = (None if part is None else int(part) for part in place.groups())
            return Problem(file, number, "", line[place.end() :], column=column)
    return Problem(files[0], None, "", line)


# In which column of a file a problem is. Daemons do without: it costs another reading of the file.

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Positions:
    """Of one file, which is read when the first column is wanted.

    :param path: of a file that was parsed before without an objection.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @cached_property
    def _root(self) -> Any:
        """None: it cannot be read any more."""
        try:
            with open(self._path, encoding="utf-8-sig") as file:
                return yaml.compose(file, Loader=_LOADER)
        except (OSError, ValueError, yaml.YAMLError):
            return None

    def column(self, problem: Problem) -> int | None:
        """Where the key or the list entry begins, from 1; None = it is not known."""
        if problem.column is not None or problem.line is None:
            return problem.column
        mark = self._mark(problem.path)
        # A value behind an alias, or one with a variable before it, may be somewhere else.
        return mark.column + 1 if mark is not None and mark.line + 1 == problem.line else None

    def _mark(self, path: tuple[Any, ...]) -> Any:
        node, mark = self._root, None
        for part in path:
            if isinstance(node, yaml.MappingNode):
                found = [pair for pair in node.value if pair[0].value == str(part)]
                if not found:
                    break
                mark, node = found[-1][0].start_mark, found[-1][1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                mark = node.start_mark
            else:
                break
        return mark
