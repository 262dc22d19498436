# SPDX-License-Identifier: Apache-2.0
"""``TESTING.rst`` has each environment that ``tools/test`` and ``tools/test --all`` run."""

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
