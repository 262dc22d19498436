# SPDX-License-Identifier: Apache-2.0
"""``config-validate``: everything at once (reference/configuration 11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.config.problems import Severity
from nodepool.config.validator import validate
from nodepool.exceptions import ConfigError

ROOT = Path(__file__).resolve().parents[3]
GOOD = "zookeeper-servers: [{host: zk}]\nzookeeper-tls: {cert: c, key: k, ca: a}\n"


def check(tmp_path: Path, text: str) -> list[tuple[Severity, str]]:
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    return [(problem.severity, str(problem).replace(f"{tmp_path}/", "")) for problem in validate(str(file))]


def test_good(tmp_path: Path) -> None:
    assert check(tmp_path, GOOD) == []


def test_shipped_sample() -> None:
    assert validate(str(ROOT / "etc" / "nodepool.yaml")) == []


def test_everything_in_one_go(tmp_path: Path) -> None:
    """Errors of all kinds and sections in the order of the lines."""
    text = (
        f"{GOOD}lables: []\n"
        "labels: [{name: a, min-ready: x}]\n"
        "max-hold-age: [1]\n"
        "diskimages: [{name: i, parent: j}]\n"
        "providers:\n"
        "- {name: p, driver: sttic}\n"
        "- {name: q, driver: static, pools: [{name: r, nodes: [{name: h, labels: [b]}]}]}\n"
        "- {name: r, driver: aws}\n"
        "max-hold-age: 1\n"
    )
    found = check(tmp_path, text)
    assert [line.split(": ")[:2] for _, line in found] == [
        ["f.yaml:3", "lables"],
        ["f.yaml:4", "labels[0].min-ready"],
        ["f.yaml:6", "diskimages[0].parent"],
        ["f.yaml:8", "providers[0].driver"],
        ["f.yaml:9", "providers[1].pools[0].nodes[0].labels[0]"],
        ["f.yaml:10", "providers[2].driver"],
        ["f.yaml:11", "max-hold-age"],
    ]
    assert [severity for severity, _ in found if severity is not Severity.ERROR] == [
        Severity.UNKNOWN_KEY,
        Severity.PROVIDER_ERROR,
        Severity.PROVIDER_ERROR,
        Severity.WARNING,
        Severity.WARNING,
    ]


def test_zookeeper_may_be_in_the_secure_file(tmp_path: Path) -> None:
    """It reads no secure file, so it cannot know."""
    found = check(tmp_path, "labels: []\n")
    assert [severity for severity, _ in found] == [Severity.WARNING] * 2
    assert (
        "zookeeper-servers: missing: a list of servers; the daemons start only if the secure file has it" in found[0][1]
    )


def test_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 1: substitution happens in the validator too."""
    monkeypatch.setenv("NODEPOOL_AGE", "5")
    assert check(tmp_path, f"{GOOD}max-hold-age: %(NODEPOOL_AGE)\n") == []
    monkeypatch.delenv("NODEPOOL_AGE")
    with pytest.raises(ConfigError, match="the environment variable NODEPOOL_AGE is not set"):
        check(tmp_path, f"{GOOD}max-hold-age: %(NODEPOOL_AGE)\n")


def test_nothing_more_to_say(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not YAML"):
        check(tmp_path, "a: [}")
