# SPDX-License-Identifier: Apache-2.0
"""The time budgets of tox's environments."""

from __future__ import annotations

import argparse
import configparser
from pathlib import Path

import pytest

import run_environments
from budgets import (
    BEFORE_A_RELEASE,
    ON_A_CLOUD,
    ON_KUBERNETES,
    ROWS,
    TOTAL_BUDGET,
    TOTAL_BUDGET_OF_ALL,
    WITH_BUILDS,
    WITH_CONTAINERS,
    WITH_DEBIAN,
    Environment,
)

NAMES = ("kubernetes", "cloud", "builds", "containers", "debian", "all")
ROOT = Path(__file__).resolve().parents[3]
EVERY = [environment for row in ROWS for environment in row]
FIRST = [ON_A_CLOUD, WITH_BUILDS, WITH_CONTAINERS, *WITH_DEBIAN, *BEFORE_A_RELEASE]
MORE = [ON_KUBERNETES, *FIRST]


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
    for environment in [*EVERY, *MORE]:
        section = sections[f"testenv:{environment.name}"]
        assert environment.tests is ("junit/{env_name}.xml" in section["commands"]), environment.name


def test_all_fits_its_budget() -> None:
    assert sum(environment.budget for environment in [*ROWS[0], *MORE]) <= TOTAL_BUDGET_OF_ALL


def test_each_functional_environment_is_part_of_all() -> None:
    functional = {name.partition(":")[2] for name in tox().sections() if name.startswith("testenv:functional-")}
    assert functional == {environment.name for environment in MORE if environment.name.startswith("functional-")}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], []),
        (["cloud", "builds"], [ON_A_CLOUD, WITH_BUILDS]),
        (["all"], list(BEFORE_A_RELEASE)),
        (["all", "kubernetes", "cloud", "builds", "containers", "debian"], FIRST),
    ],
)
def test_additional(wanted: list[str], expected: list[Environment]) -> None:
    """What cannot run here is left out, also of all."""
    options = argparse.Namespace(**{name: name in wanted for name in NAMES})
    assert run_environments.additional(options) == expected
    assert run_environments.beside(options) == ([ON_KUBERNETES] if "kubernetes" in wanted else [])
