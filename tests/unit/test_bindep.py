# SPDX-License-Identifier: Apache-2.0
"""``bindep.txt`` names the Debian packages that the scripts install; each list is compared with its script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: ``need PACKAGE COMMAND``, see tools/lib/debian.sh.
NEED = re.compile(r"^\s*need ([a-z0-9.+-]+) ", re.MULTILINE)
#: ``need_java_zookeeper`` and the like, and their definitions.
GROUP = re.compile(r"^\s*(need_\w+)(?: *\(\) \{\n(.*?)\n\})?", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^(?P<package>\S+) \[(?:(?P<profile>[a-z]+) )?platform:dpkg\]$")


def packages(profile: str | None) -> set[str]:
    """Packages of a profile; None = those without one."""
    lines = (ROOT / "bindep.txt").read_text(encoding="utf-8").splitlines()
    entries = [ENTRY.match(line) for line in lines if line and not line.startswith("#")]
    assert all(entries)
    return {entry["package"] for entry in entries if entry and entry["profile"] == profile}


def installed_by(script: str) -> set[str]:
    """Packages that a script of tools/ installs when they are missing."""
    text = (ROOT / "tools" / script).read_text(encoding="utf-8")
    library = (ROOT / "tools" / "lib" / "debian.sh").read_text(encoding="utf-8")
    groups = {name: body for name, body in GROUP.findall(library) if body}
    called = [name for name, _ in GROUP.findall(text)]
    return {package for part in [text, *(groups[name] for name in called)] for package in NEED.findall(part)}


def of_the_image(target: str) -> set[str]:
    """Packages that a target of the Dockerfile installs."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    section = text[text.index(f" AS {target}\n") :]
    command = re.search(r"apt-get install -y --no-install-recommends (.*?) && rm", section.replace("\\\n", ""))
    assert command is not None
    return set(command[1].split())


def test_of_the_builder() -> None:
    assert packages("builder") == of_the_image("nodepool-builder")


def test_of_the_compiler() -> None:
    assert packages("compile") == of_the_image("build")


def test_of_tests() -> None:
    python = {"python3"}
    assert packages(None) | packages("test") == installed_by("test") | python


def test_of_functional_tests() -> None:
    scripts = ["functional-builder", "functional-containers", "functional-install"]
    assert packages("functional") == set().union(*map(installed_by, scripts)) - packages("test")


@pytest.mark.parametrize("script", ["demo", "bench", "simulate"])
def test_of_other_tools(script: str) -> None:
    """What they need is in the lists, too."""
    known = packages(None) | packages("test") | packages("builder")
    assert installed_by(script) <= known
