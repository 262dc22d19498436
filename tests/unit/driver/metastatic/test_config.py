# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.metastatic.config` (reference/configuration 10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config.objects import Config, Label
from nodepool.config.validator import validate
from nodepool.driver.metastatic import MetastaticDriver
from nodepool.driver.metastatic.config import MetastaticProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.plan.backing import BackingKind, Rules

NAMES = ("a", "b", "c", "d")


def label(name: str = "a", backing: str = "big", **settings: Any) -> dict[str, Any]:
    return {"name": name, "backing-label": backing, **{key.replace("_", "-"): settings[key] for key in settings}}


def section(*labels: dict[str, Any], more: list[dict[str, Any]] | None = None, **settings: Any) -> dict[str, Any]:
    pools = [{"name": "main", "labels": list(labels)}]
    if more:
        pools.append({"name": "other", "labels": more})
    return {"name": "shared", "driver": "metastatic", "pools": pools, **settings}


def load(provider: dict[str, Any]) -> MetastaticProviderConfig:
    config = Config()
    config.labels = {name: Label(name) for name in NAMES}
    loaded = MetastaticDriver().getProviderConfig(provider)
    loaded.load(config)
    return loaded


def problems(path: Path, *providers: dict[str, Any]) -> list[str]:
    """What ``config-validate`` says, without the name of the file."""
    whole = {
        "zookeeper-servers": [{"host": "localhost"}],
        "zookeeper-tls": {"cert": "c", "key": "k", "ca": "a"},
        "labels": [{"name": name} for name in NAMES],
        "providers": list(providers),
    }
    file = path / "nodepool.yaml"
    file.write_text(yaml.safe_dump(whole, sort_keys=False))
    return [str(problem).removeprefix(f"{file}:") for problem in validate(str(file))]


def test_defaults() -> None:
    config = load(section(label()))
    assert (config.launch_retries, config.launch_timeout, config.boot_timeout) == (3, 3600, 120)
    assert not config.manage_images
    found = config.pools["main"].labels["a"]
    assert found.rules == Rules(1, 60, 0, None)
    assert not found.host_key_checking
    assert config.rules() == {BackingKind("a", "big"): found.rules}
    assert config.getSupportedLabels() == config.getSupportedLabels("main") == {"a"}
    assert config.getSupportedLabels("other") == set()


def test_everything(tmp_path: Path) -> None:
    rules = {"max-parallel-jobs": 4, "grace-time": 10, "min-retention-time": 300, "max-age": 3600}
    pool = {
        "name": "main",
        "max-servers": 8,
        "priority": 3,
        "node-attributes": {"x": 1},
        "host-key-checking": True,
        "labels": [{**label(), **rules}, {**label("b"), **rules, "host-key-checking": False}],
    }
    provider = {
        "name": "shared",
        "driver": "metastatic",
        "max-concurrency": 5,
        "priority": 7,
        "launch-retries": 2,
        "launch-timeout": 60,
        "boot-timeout": 30.5,
        "rate": 1,
        "pools": [pool],
    }
    assert problems(tmp_path, provider) == []
    config = load(provider)
    assert (config.launch_retries, config.launch_timeout, config.boot_timeout) == (2, 60, 30.5)
    labels = config.pools["main"].labels
    assert labels["a"].rules == labels["b"].rules == Rules(4, 10, 300, 3600)
    assert labels["a"].host_key_checking
    assert not labels["b"].host_key_checking
    assert (config.pools["main"].max_servers, config.pools["main"].priority) == (8, 3)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_parallel_jobs": 0}, "max-parallel-jobs: expected a whole number, 1 to 10000, got 0"),
        ({"grace_time": -1}, "grace-time: expected a whole number, 0 or more, got -1"),
        ({"grace_time": "1h"}, "grace-time: expected a whole number, 0 or more, got '1h'"),
        ({"min_retention_time": True}, "min-retention-time: expected a whole number, 0 or more, got true"),
        ({"max_age": -5}, "max-age: "),
        ({"host_key_checking": "no way"}, "host-key-checking: expected true or false, got 'no way'"),
        ({"graze_time": 3}, "graze-time: unknown key, did you mean 'grace-time'? (allowed: backing-label, grace-time,"),
    ],
)
def test_bad_values(tmp_path: Path, settings: dict[str, Any], expected: str) -> None:
    """Line, key, and what is allowed."""
    (found,) = problems(tmp_path, section(label(**settings)))
    line, _, text = found.partition(": ")
    assert line.isdigit()
    assert text.startswith(f"providers[0].pools[0].labels[0].{expected}")


def test_required(tmp_path: Path) -> None:
    found = problems(tmp_path, section({"name": "a"}))
    assert [text.partition(": ")[2] for text in found] == [
        "providers[0].pools[0].labels[0].backing-label: required, but missing"
    ]


@pytest.mark.parametrize(
    ("one", "two", "key", "values"),
    [
        ({"max_parallel_jobs": 2}, {"max_parallel_jobs": 3}, "max-parallel-jobs", ("3", "2")),
        ({}, {"max_parallel_jobs": 3}, "max-parallel-jobs", ("3", "1")),
        ({"grace_time": 10}, {"grace_time": 60}, "grace-time", ("60", "10")),
        ({"max_age": 10}, {}, "backing-label", ("not set", "10")),
        ({}, {"min_retention_time": 3}, "min-retention-time", ("3", "0")),
    ],
)
@pytest.mark.parametrize("pools", ["one pool", "two pools"])
def test_same_backing_label(
    tmp_path: Path, one: dict[str, Any], two: dict[str, Any], key: str, values: tuple[str, str], pools: str
) -> None:
    """10: labels with the same backing-label agree; the problem shows where, and what the other one says."""
    first, second = label("a", **one), label("b", **two)
    provider = section(first, second) if pools == "one pool" else section(first, more=[second])
    (found,) = problems(tmp_path, provider)
    where = "pools[0].labels[1]" if pools == "one pool" else "pools[1].labels[0]"
    assert f"providers[0].{where}.{key}: " in found
    assert f"of label 'b' is {values[0]}, that of 'a' is {values[1]}; " in found
    assert "must agree on max-parallel-jobs, grace-time, min-retention-time, max-age" in found
    with pytest.raises(ConfigError, match="must agree"):
        load(provider)


def test_equal_although_one_is_the_default(tmp_path: Path) -> None:
    assert problems(tmp_path, section(label("a", grace_time=60), label("b"), label("c", "other", grace_time=1))) == []


def test_max_age_and_retention(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, section(label(max_age=10, min_retention_time=11)))
    assert found.endswith("labels[0].max-age: max-age is 10, it must not be less than min-retention-time, which is 11")
    assert problems(tmp_path, section(label(max_age=11, min_retention_time=11))) == []
    with pytest.raises(ConfigError, match="must not be less"):
        load(section(label(max_age=10, min_retention_time=11)))


@pytest.mark.parametrize(
    "labels",
    [[label("a", "a")], [label("a", "b"), label("b", "a")], [label("a", "b"), label("b", "c"), label("c", "b")]],
)
def test_circles(tmp_path: Path, labels: list[dict[str, Any]]) -> None:
    """A node that stands on itself would never be ready."""
    found = problems(tmp_path, section(*labels))
    assert found
    assert all("would stand on itself (" in text and "backing-label must be" in text for text in found)


def test_circle_of_several_providers(tmp_path: Path) -> None:
    """Each alone is fine; the one that closes the circle is refused, with its line."""
    sections = [section(label("a", "b")), section(label("b", "c"), label("d", "big")), section(label("c", "a"))]
    for number, provider in enumerate(sections):
        provider["name"] = f"shared-{number}"
    assert problems(tmp_path, *sections[:2]) == []
    (found,) = problems(tmp_path, *sections)
    assert "provider shared-2: label 'c' would stand on itself (c on a on b on c); backing-label must be" in found
    assert found.split(":")[0].isdecimal()


def test_on_top_of_each_other(tmp_path: Path) -> None:
    assert problems(tmp_path, section(label("a", "b"), label("b", "c"), label("c", "big"))) == []
    assert problems(tmp_path, section(label("a", "b")), {**section(label("b", "big")), "name": "another"}) == []


def test_unknown_label(tmp_path: Path) -> None:
    """A label must be declared; a backing label need not: another launcher may serve it."""
    (found,) = problems(tmp_path, section(label("nobody", "somebody")))
    assert "the label 'nobody' is not defined" in found
