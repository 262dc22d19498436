# SPDX-License-Identifier: Apache-2.0
"""The table of the documentation, and that of the results of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.functional.released_drivers.cloud import Cloud

#: The columns: name of a test without ``test_``, and its heading.
STEPS = {"configuration": "Configuration", "start": "Start", "launch": "Launch", "delete": "Delete", "leaks": "Leaks"}


def documented(rows: Iterable[type[Cloud]]) -> str:
    """The table as it stands in the documentation (reStructuredText)."""
    lines = [".. csv-table::", "   :delim: |", f"   :header: {' | '.join(('Driver', 'Talks to', *STEPS.values()))}", ""]
    return "\n".join([*lines, *(f"   {' | '.join(_cells(row))}" for row in rows)])


def _cells(row: type[Cloud]) -> list[str]:
    steps = dict.fromkeys(STEPS, "yes")
    if row.no_launch:
        steps |= dict.fromkeys(("launch", "delete", "leaks"), row.no_launch)
    elif row.no_sweep:
        steps["leaks"] = row.no_sweep
    return [f"``{row.driver}``", row.kind, *steps.values()]


def results(outcomes: Mapping[str, str]) -> list[str]:
    """A line for each row that ran. :param outcomes: by id of a test, e.g. ``launch[aws]``."""
    rows: dict[str, dict[str, str]] = {}
    for test, outcome in outcomes.items():
        step, _, row = test.rstrip("]").partition("[")
        if step in STEPS:
            rows.setdefault(row, {})[step] = outcome
    heading = f"{'driver':20}" + "".join(f"{heading:>15}" for heading in STEPS.values())
    lines = [f"{row:20}" + "".join(f"{found.get(step, '-'):>15}" for step in STEPS) for row, found in rows.items()]
    return [heading, *sorted(lines)]
