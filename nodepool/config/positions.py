# SPDX-License-Identifier: Apache-2.0
"""In which column of a file a problem is. Daemons do without: it costs another reading of the file."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import yaml

from nodepool.config.problems import Problem

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
