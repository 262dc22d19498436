# SPDX-License-Identifier: Apache-2.0
"""A report: paragraphs and listings one below the other, e.g. of ``nodepool status``. `listing.terminal` shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nodepool.listing.table import Table, render
from nodepool.quick_dataclass import dataclass


@dataclass(frozen=True)
class Paragraph:
    """Text without line breaks; long ones are wrapped where they are drawn again and again.

    :param spans: text, and its style on a terminal: a name of the library ``rich``, empty = none.
    """

    spans: Sequence[tuple[str, str]] = ()

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.spans)


BLANK = Paragraph()


@dataclass(frozen=True)
class Report:
    """One picture.

    :param told: the same for programs, an object of JSON. What moves by itself, as ages do, is not in it: a report that
        is watched without a terminal is printed again when this differs.
    """

    parts: Sequence[Paragraph | Table]
    told: Any


def as_text(report: Report) -> str:
    """A report as it is printed where no terminal is."""
    return "\n".join(part.text if isinstance(part, Paragraph) else render(part) for part in report.parts)


class ChangedReports:
    """A report that is watched by a program: it is printed again when it has changed. For one thread.

    :param form: ``table`` or ``json``; JSON is one object a line.
    """

    def __init__(self, form: str) -> None:
        self._form = form
        self._last: str | None = None

    def text(self, report: Report) -> str:
        """What is to be printed now; empty = nothing."""
        told = json.dumps(report.told, sort_keys=True)
        first, changed = self._last is None, told != self._last
        self._last = told
        if not changed:
            return ""
        if self._form == "json":
            return json.dumps(report.told)
        return as_text(report) if first else f"\n{as_text(report)}"
