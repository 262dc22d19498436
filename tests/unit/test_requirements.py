# SPDX-License-Identifier: Apache-2.0
"""Lower bounds of dependencies: everywhere, each with its reason, and the same wherever a package is named.

That the code works with them is tested by tox's "lower-bounds", that they have no known weakness by its "audit".
"""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[[a-z0-9,-]+\])?(>=(?P<least>\d[\w.]*)(,<\d[\d.]*)?|==(?P<exactly>\d[\w.]*))"
)


def extra(name: str) -> list[str]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config["options.extras_require"][name].split()


def lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize(
    "path",
    [*sorted(ROOT.glob("*requirements.txt")), *sorted(ROOT.glob("*/**/requirements.txt"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_dependency_has_a_lower_bound(path: Path) -> None:
    for line in lines(path):
        assert LINE.fullmatch(line), line


def test_default_driver() -> None:
    """What the default driver needs comes with the package, and so does the tool of image builds; as in Nodepool 11."""
    core = {line.partition(">=")[0] for line in lines(ROOT / "requirements.txt")}
    assert core >= {"openstacksdk", "diskimage-builder", "keystoneauth1", "requests", "urllib3"}
    assert extra("openstack") == [], "the name of the extra stays"
    assert not core & {"boto3", "kubernetes", "openshift"}, "heavier clouds are extras"


def test_each_has_its_reason() -> None:
    """A comment right above it."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [number for number, line in enumerate(text) if LINE.fullmatch(line.strip())]
    assert len(wanted) >= 4
    assert [text[number] for number in wanted if not text[number - 1].lstrip().startswith("#")] == []


def test_the_same_everywhere() -> None:
    """What tests name again has the same bound."""
    bounds = {line.partition(">=")[0]: line for line in lines(ROOT / "requirements.txt")}
    used = {line.partition(">=")[0]: line for line in lines(ROOT / "test-requirements.txt")}
    assert [line for name, line in used.items() if bounds.get(name, line) != line] == []
