# SPDX-License-Identifier: Apache-2.0
"""``config-validate``: everything at once (reference/configuration 11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.config.problems import Severity
from nodepool.config.validator import validate, validate_here
from nodepool.driver.registry import KNOWN
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


def test_everything_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of all kinds and sections in the order of the lines."""
    # A driver of the released Nodepool that is not here.
    monkeypatch.setattr("nodepool.config.assembly.KNOWN", KNOWN | {"nimbus"})
    text = (
        f"{GOOD}lables: []\n"
        "labels: [{name: a, min-ready: x}]\n"
        "max-hold-age: [1]\n"
        "diskimages: [{name: i, parent: j}]\n"
        "providers:\n"
        "- {name: p, driver: sttic}\n"
        "- {name: q, driver: static, pools: [{name: r, nodes: [{name: h, labels: [b]}]}]}\n"
        "- {name: r, driver: nimbus}\n"
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
    """Without that file the launcher would refuse it, and so does ``check``; in the gate of a site it is a warning."""
    found = check(tmp_path, "labels: []\n")
    assert [severity for severity, _ in found] == [Severity.INCOMPLETE] * 2
    assert [line.partition(":")[0] for line in here(tmp_path, "labels: []\n")] == ["warning"] * 2
    assert "zookeeper-servers: required, but missing: a list of servers" in found[0][1]
    assert found[0][1].endswith("if the secure file has it, name that file with -s")
    secure = tmp_path / "secure.yaml"
    secure.write_text(GOOD, encoding="utf-8")
    assert validate(str(tmp_path / "f.yaml"), str(secure)) == []
    secure.write_text("zookeeper-servers: [{host: zk}]\n", encoding="utf-8")
    (problem,) = validate(str(tmp_path / "f.yaml"), str(secure))
    assert (problem.key, problem.severity) == ("zookeeper-tls", Severity.INCOMPLETE)
    assert "-s" not in problem.message
    assert validate_here(str(tmp_path / "f.yaml"), str(secure)) == [problem]


def test_secure_file_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(GOOD, encoding="utf-8")
    (problem,) = validate_here(str(file), str(tmp_path / "secure.yaml"))
    assert str(problem) == f"{tmp_path}/secure.yaml: no such file"


def here(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "f.yaml"
    file.write_text(text, encoding="utf-8")
    return [f"{problem.severity.value}: {problem}".replace(f"{tmp_path}/", "") for problem in validate_here(str(file))]


def test_files_of_this_machine(tmp_path: Path) -> None:
    """One that is missing may be on another machine; one that is here is right or wrong."""
    (tmp_path / "k").write_text("hello", encoding="utf-8")
    cert, key, ca = here(
        tmp_path,
        f"zookeeper-servers: [{{host: zk}}]\nzookeeper-tls:\n  cert: /no/c\n  key: {tmp_path}/k\n  ca: /no/a\n",
    )
    assert cert.startswith("warning: f.yaml:3:3: zookeeper-tls.cert: there is no file /no/c")
    assert key == "error: f.yaml:4:3: zookeeper-tls.key: k is no private key in PEM form"
    assert ca.startswith("warning: f.yaml:5:3: zookeeper-tls.ca: there is no file /no/a")


def test_name_that_stands_twice(tmp_path: Path) -> None:
    """A provider or a pool that does not count: a daemon goes on, as one of Nodepool 11 does; it is not valid."""
    pool = "{name: m, nodes: []}"
    providers = f"- {{name: p, driver: static, pools: [{pool}, {pool}]}}\n- {{name: p, driver: static, pools: []}}\n"
    (found,) = check(tmp_path, f"{GOOD}providers:\n{providers}")
    assert (found[0], found[1].split(": ")[1]) == (Severity.TOLERATED, "providers[0].name")
    (found,) = check(tmp_path, f"{GOOD}providers:\n{providers.splitlines()[0]}\n")
    assert (found[0], found[1].split(": ")[1]) == (Severity.TOLERATED, "providers[0].pools[0].name")


def test_label_to_keep_ready_that_no_pool_has(tmp_path: Path) -> None:
    providers = "providers: [{name: p, driver: static, pools: [{name: m, nodes: [{name: h, labels: [a]}]}]}]\n"
    labels = "labels: [{name: a, min-ready: 1}, {name: b, min-ready: 1}, {name: c}]\n"
    (found,) = check(tmp_path, GOOD + providers + labels)
    assert found == (
        Severity.WARNING,
        "f.yaml:4: labels[1].min-ready: no pool of this file has the label; add it to a pool, or remove min-ready",
    )


def test_clouds_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud that is not in it, and no such file."""
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text("clouds: {other: {auth: {}}}\n", encoding="utf-8")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    text = f"{GOOD}providers:\n- name: p\n  driver: openstack\n  cloud: mine\n  pools: []\n"
    [*_, found] = here(tmp_path, text)
    assert found.startswith("warning: f.yaml:6:3: providers[0].cloud: clouds.yaml has no cloud 'mine' (it has: other)")
    clouds.unlink()
    [*_, found] = here(tmp_path, text)
    assert "providers[0].cloud: there is no clouds.yaml with the cloud 'mine'" in found


def test_what_a_driver_says_of_this_machine_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> None:
        raise OSError("broken")

    monkeypatch.setattr("nodepool.driver.config.ProviderConfig.localProblems", fail)
    [*_, found] = here(tmp_path, f"{GOOD}providers:\n- {{name: p, driver: static, pools: []}}\n")
    assert found == "warning: f.yaml:4:13: providers[0].driver: localProblems(): OSError: broken"


def test_what_is_no_yaml_is_a_problem_with_its_place(tmp_path: Path) -> None:
    (found,) = here(tmp_path, "labels:\n\t- name: a\n")
    assert found.startswith("error: f.yaml:2:1: not YAML: a tab character is used for indentation")


def test_wrong_driver_does_not_hide_the_rest(tmp_path: Path) -> None:
    """Its section is checked as one of the driver that is probably meant."""
    found = check(
        tmp_path, f"{GOOD}providers:\n- name: p\n  driver: statik\n  pool: []\n  pools: [{{name: m, nods: []}}]\n"
    )
    assert [line.partition(": ")[2].split(":")[0] for _, line in found] == [
        "providers[0].driver",
        "providers[0].pool",
        "providers[0].pools[0].nods",
    ]


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
