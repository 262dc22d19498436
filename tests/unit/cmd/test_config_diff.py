# SPDX-License-Identifier: Apache-2.0
"""``nodepool config-diff`` (reference/commands 2)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodepool.cmd import cli

pytestmark = pytest.mark.usefixtures("clean_logging")

OLD = """
zookeeper-servers: [{host: zk1}]
zookeeper-tls: {cert: /c, key: /k, ca: /a}
labels: [{name: small}]
providers:
- {name: lab, driver: static, pools: [{name: main, nodes: [{name: h, labels: [small]}]}]}
"""


@pytest.fixture
def old(tmp_path: Path) -> str:
    path = tmp_path / "old.yaml"
    path.write_text(OLD, encoding="utf-8")
    return str(path)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new.yaml"


def test_against_the_file_in_effect(old: str, new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new.write_text(OLD.replace("name: small}]\n", "name: small, min-ready: 2}]\n"), encoding="utf-8")
    assert cli.main(["-c", old, "config-diff", str(new)]) == 0
    assert capsys.readouterr() == ("label small changed: min-ready: 0 -> 2\n", "")


def test_two_files(old: str, new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new.write_text(OLD.replace("name: lab", "name: rack"), encoding="utf-8")
    assert cli.main(["config-diff", old, str(new)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("provider rack added")
    assert lines[1] == "  -> the provider is started, and its pools serve requests"
    assert lines[2] == "provider lab removed"


def test_no_difference(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config-diff", old, old]) == 0
    assert capsys.readouterr().out == f"{old}: no key has another value\n"


def test_refused_section(old: str, new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said once, with its place."""
    new.write_text(OLD.replace("labels: [small]", "labels: [smal]"), encoding="utf-8")
    assert cli.main(["-c", old, "config-diff", "--format", "json", str(new)]) == 1
    out, err = capsys.readouterr()
    (found,) = json.loads(out)
    assert (found["kind"], found["name"]) == ("provider", "lab")
    assert "the running one goes on with its old section" in found["effect"]
    assert f"{new}:6: providers[0].pools[0].nodes[0].labels[0]: the label 'smal' is not defined" in found["effect"]
    assert err == ""


def test_refused_file(old: str, new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new.write_text("labels: [\n", encoding="utf-8")
    assert cli.main(["-c", old, "config-diff", str(new)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "not YAML" in err
    assert f"{new} would be refused, and the running configuration would stay" in err


def test_three_files(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["config-diff", "a", "b", "c"])
    assert ended.value.code == 2
    assert "3 files are given, two can be compared" in capsys.readouterr().err
