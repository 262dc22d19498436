# SPDX-License-Identifier: Apache-2.0
"""The provider section (reference/configuration 10), and what stands in records (reference/zookeeper 5.6)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config.objects import Config, Label
from nodepool.config.validator import validate
from nodepool.driver.metastatic import MetastaticDriver
from nodepool.driver.metastatic.slots import BackingData, driver_data, owner_of, place_of
from nodepool.exceptions import ConfigError
from nodepool.model.node import Node
from nodepool.plan.backing import BackingKind, Rules

NAMES = ("a", "b", "c", "d")


def label(name: str = "a", backing: str = "big", **settings: Any) -> dict[str, Any]:
    return {"name": name, "backing-label": backing, **{key.replace("_", "-"): settings[key] for key in settings}}


def section(*labels: dict[str, Any], more: tuple[dict[str, Any], ...] = (), **settings: Any) -> dict[str, Any]:
    pools: list[Any] = [{"name": "main", "labels": list(labels)}]
    pools += [{"name": "other", "labels": list(more)}] if more else []
    return {"name": "shared", "driver": "metastatic", "pools": pools, **settings}


def load(provider: dict[str, Any]) -> Any:
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


@pytest.mark.parametrize(
    ("settings", "rules", "checking"),
    [
        ({}, Rules(1, 60, 0, None), False),
        ({"grace_time": 10, "min_retention_time": 300, "max_age": 3600}, Rules(1, 10, 300, 3600), False),
        ({"host_key_checking": True}, Rules(1, 60, 0, None), True),
    ],
)  # fmt: skip
def test_keys(tmp_path: Path, settings: dict[str, Any], rules: Rules, checking: bool) -> None:
    """10: defaults, and keys of labels."""
    provider = section(label(**settings), rate=1)
    assert problems(tmp_path, provider) == []
    config = load(provider)
    assert (config.launch_retries, config.launch_timeout, config.boot_timeout) == (3, 3600, 120)
    assert config.rules() == {BackingKind("a", "big"): rules}
    assert config.pools["main"].labels["a"].host_key_checking is checking


ONE = "max-parallel-jobs of label 'b' is 3, that of 'a' is "
AGREE = "must agree on max-parallel-jobs, grace-time, min-retention-time, max-age"


@pytest.mark.parametrize(
    ("labels", "key", "text"),
    [
        ([label(max_parallel_jobs=0)], "max-parallel-jobs", "expected a whole number, 1 to 10000, got 0"),
        ([label(grace_time="1h")], "grace-time", "expected a whole number, 0 or more, got '1h'"),
        ([label(min_retention_time=True)], "min-retention-time", "expected a whole number, 0 or more, got true"),
        ([label(max_age=-5)], "max-age", ""),
        ([label(graze_time=3)], "graze-time", "unknown key, did you mean 'grace-time'?"),
        ([{"name": "a"}], "backing-label", "required, but missing"),
        ([label("unknown")], "name", "the label 'unknown' is not defined"),
        # Labels with the same backing label agree.
        ([label(), label("b", max_parallel_jobs=3)], "max-parallel-jobs", f"{ONE}1; "),
        ([label(max_parallel_jobs=2), label("b", max_parallel_jobs=3)], "max-parallel-jobs", f"{ONE}2; "),
        ([label(max_age=10), label("b")], "backing-label", "max-age of label 'b' is not set, that of 'a' is 10; "),
        ([label(), label("b", min_retention_time=3)], "min-retention-time", AGREE),
        ([label(grace_time=60), label("b"), label("c", "other", grace_time=1)], "", ""),
        (
            [label(max_age=10, min_retention_time=11)],
            "max-age",
            "it must not be less than min-retention-time, which is",
        ),
        ([label(max_age=11, min_retention_time=11)], "", ""),
        # A node that stands on itself would never be ready.
        ([label("a", "a")], "backing-label", "would stand on itself (a on a)"),
        ([label("a", "b"), label("b", "c"), label("c", "b")], "backing-label", "would stand on itself (b on c on b)"),
        ([label("a", "b"), label("b", "c"), label("c", "big")], "", ""),
    ],
)
@pytest.mark.parametrize("pools", [1, 2])
def test_what_is_wrong(tmp_path: Path, labels: list[dict[str, Any]], key: str, text: str, pools: int) -> None:
    """10: line, key, and what is allowed; also if the labels are of several pools."""
    provider = section(*labels) if pools == 1 else section(labels[0], more=tuple(labels[1:]))
    found = problems(tmp_path, provider)
    assert bool(found) is bool(key)
    assert not found or found[0].partition(": ")[0].isdigit()
    assert not key or any(f".{key}: " in one and text in one for one in found)
    if "must" in text or "that of" in text or "itself" in text:
        with pytest.raises(ConfigError, match="must"):
            load(provider)


def test_circle_of_several_providers(tmp_path: Path) -> None:
    """10: each alone is fine; the one that closes the circle is refused, with its line."""
    sections = [section(label("a", "b")), section(label("b", "c"), label("d", "big")), section(label("c", "a"))]
    for number, provider in enumerate(sections):
        provider["name"] = f"shared-{number}"
    assert problems(tmp_path, *sections[:2]) == []
    (found,) = problems(tmp_path, *sections)
    assert "provider shared-2: label 'c' would stand on itself (c on a on b on c); backing-label must be" in found
    assert found.split(":")[0].isdecimal()


# -- records --

OWNER = owner_of("shared")
DATA = BackingData(OWNER, "small", 3, False, 12.5, ("0000000001", None, None))
FIELDS = json.loads(DATA.encode())
BROKEN = dataclasses.replace(DATA, failed=True)


def decoded(**changes: Any) -> BackingData | None:
    return BackingData.decode(json.dumps({**FIELDS, **changes}))


def test_changes() -> None:
    """5.6: slots are given and freed; keys that we do not know stay. An empty node that is used again is not idle."""
    assert FIELDS == {
        "owner": "NodePool:metastatic:shared",
        "label": "small",
        "slots": 3,
        "failed": False,
        "launched": 12.5,
        "nodes": ["0000000001", None, None],
        "idle_since": None,
    }
    assert json.loads((decoded(new=[1], lost=["a", "b"]) or DATA).encode()) == {
        **FIELDS,
        "new": [1],
        "lost": ["a", "b"],
    }
    assert DATA.with_node(2, "0000000007").nodes == ("0000000001", None, "0000000007")
    assert DATA.with_node(0, None).nodes == (None, None, None)
    assert DATA.as_failed() == BROKEN
    idle = decoded(idle_since=4.5)
    assert idle == dataclasses.replace(DATA, idle_since=4.5)
    assert idle is not None
    assert idle.with_node(2, "0000000007").idle_since is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Older launchers do not say who has which slot.
        *(({"nodes": nodes}, {"nodes": (None, None, None)}) for nodes in (None, "0000000001")),
        ({"nodes": ["a"]}, {"nodes": ("a", None, None)}),
        ({"nodes": ["a", 3, "", "d", "e"]}, {"nodes": ("a", None, None)}),
        # Without a time it is old.
        *(({"launched": launched}, {"launched": 0}) for launched in (None, "then", True, float("inf"), 10**400)),
        # Nothing new is put on it, and it is released when it is empty.
        *(
            ({"slots": slots}, {"failed": True, "slots": 1, "nodes": ("0000000001",)})
            for slots in (0, "2", True, 10**9, None)
        ),
        *(({"label": label}, {"failed": True, "label": ""}) for label in (None, 3)),
        ({"lost": ["Spot", 3]}, {"lost": ("Spot", "3")}),
        ({"lost": ["Spot"]}, {"lost": None}),
    ],
    ids=str,
)
def test_broken_values(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    """5.6: they become harmless ones."""
    assert decoded(**changes) == dataclasses.replace(DATA, **expected)


@pytest.mark.parametrize(
    "value", [None, {}, {"zuul_system": "x"}, "", "{", "[]", "3", "{}", '{"owner": 3}', "[" * 100_000], ids=range(10)
)
def test_no_backing_data(value: Any) -> None:
    """5.6: what others write is no data of a backing node, and no place of a node."""
    assert BackingData.decode(value) is None
    node = Node("small", "0000000007")
    for data in (value, {"backing_node": "b"}, {"backing_node": 3, "slot": 1}, {"backing_node": "b", "slot": True}):
        node.driver_data = data
        assert place_of(node) is None
    node.driver_data = driver_data({}, "0000000003", 1, "0000000007")
    assert place_of(node) == ("0000000003", 1)
