# SPDX-License-Identifier: Apache-2.0
"""The time budgets of tox's environments."""

from __future__ import annotations

import configparser
from pathlib import Path

from budgets import ON_A_CLOUD, ROWS, TOTAL_BUDGET, WITH_BUILDS

ROOT = Path(__file__).resolve().parents[3]
EVERY = [environment for row in ROWS for environment in row]


def tox() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini", encoding="utf-8")
    return parser


def test_each_default_environment_has_one() -> None:
    defaults = [name.strip() for name in tox()["tox"]["env_list"].split(",")]
    assert sorted(environment.name for environment in EVERY) == sorted(defaults)


def test_all_together_stay_below_the_whole() -> None:
    """Rows run beside each other."""
    assert max(sum(environment.budget for environment in row) for row in ROWS) <= TOTAL_BUDGET <= 45 * 60


def test_what_writes_a_junit_file_is_known_as_tests() -> None:
    """Its slowest tests are read from that file, and it is told when to end."""
    sections = tox()
    for environment in [*EVERY, ON_A_CLOUD, WITH_BUILDS]:
        section = sections[f"testenv:{environment.name}"]
        assert environment.tests is ("junit/{env_name}.xml" in section["commands"]), environment.name
