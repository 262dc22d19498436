# SPDX-License-Identifier: Apache-2.0
"""``TESTING.rst`` has what ``tools/test`` and its ``--all`` run; the page for developers has each simulated cloud."""

from __future__ import annotations

import re
from pathlib import Path

from budgets import BEFORE_A_RELEASE, ON_A_CLOUD, ON_KUBERNETES, ROWS, WITH_BUILDS, WITH_CONTAINERS, WITH_DEBIAN

ROOT = Path(__file__).parents[2]


def parts() -> dict[str, str]:
    """Tox environment -> what it is a part of."""
    text = (ROOT / "TESTING.rst").read_text(encoding="utf-8")
    rows = re.findall(r"\* - ``tox -e (\S+)``\n     - .*\n     - (.*)", text)
    return {name: part for names, part in rows for name in names.split(",")}


def test_times() -> None:
    """A time that the page names leaves room below the budget."""
    text = (ROOT / "TESTING.rst").read_text(encoding="utf-8")
    times = re.findall(r"\* - ``tox -e (\S+)``\n     - .* (\d+) minutes", text)
    budgets = {environment.name: environment.budget for environment in (WITH_CONTAINERS, *WITH_DEBIAN)}
    assert {name for name, _ in times} == set(budgets)
    assert all(int(minutes) * 60 * 1.25 <= budgets[name] for name, minutes in times)


def test_simulated_clouds() -> None:
    """Each that runs as a process has its row."""
    page = (ROOT / "doc" / "source" / "developers" / "testing.rst").read_text(encoding="utf-8")
    listed = re.findall(r"^   \* - ``nodepool\.testing\.(\w+)``$", page, re.MULTILINE)
    programs = (ROOT / "nodepool" / "testing").glob("*/__main__.py")
    assert sorted(listed) == sorted(program.parent.name for program in programs)


def test_environments() -> None:
    usual = {environment.name for row in ROWS for environment in row}
    listed = parts()
    assert {name for name, part in listed.items() if part == "``test``"} == usual
    on_a_cloud = {name for name, part in listed.items() if part == "``test``, where there is a cloud"}
    assert on_a_cloud == {ON_A_CLOUD.name, WITH_BUILDS.name}
    on_a_rig = {name for name, part in listed.items() if part == "``test``, where there is a rig"}
    assert on_a_rig == {ON_KUBERNETES.name}
    slow = {environment.name for environment in (*BEFORE_A_RELEASE, WITH_CONTAINERS, *WITH_DEBIAN)}
    assert {name for name, part in listed.items() if part == "``--all``"} == slow
