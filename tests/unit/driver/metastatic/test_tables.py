# SPDX-License-Identifier: Apache-2.0
"""The provider section (reference/configuration 10), and what stands in records (reference/zookeeper 5.6)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config.assembly import validate
from nodepool.config.objects import Config, Label
from nodepool.driver.metastatic import MetastaticDriver
from nodepool.driver.metastatic.backing import BackingData, driver_data, owner_of, place_of
from nodepool.exceptions import ConfigError
from nodepool.model.node import Node
from tests.support.tables import driver_table

NAMES = ("a", "b", "c", "d")


def section(*labels: dict[str, Any], name: str = "shared", pools: int = 1) -> dict[str, Any]:
    """A provider; with two pools the first one has one label."""
    given = [{"backing-label": "big", **label} for label in labels]
    parts = [given] if pools == 1 else [given[:1], given[1:]]
    made = [{"name": f"pool-{number}", "labels": part} for number, part in enumerate(parts)]
    return {"name": name, "driver": "metastatic", "pools": made}


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


@pytest.mark.parametrize(("labels", "key", "text"), driver_table("metastatic", "checked"))
@pytest.mark.parametrize("pools", [1, 2])
def test_what_is_wrong(tmp_path: Path, labels: list[dict[str, Any]], key: str, text: str, pools: int) -> None:
    """10: line, key, and what is allowed; also if the labels are of several pools."""
    provider = section(*labels, pools=pools)
    found = problems(tmp_path, provider)
    assert bool(found) is bool(key)
    assert not found or found[0].partition(": ")[0].isdigit()
    assert not key or any(f".{key}: " in one and text in one for one in found)
    if "must" in text or "that of" in text or "itself" in text:
        config = Config()
        config.labels = {name: Label(name) for name in NAMES}
        with pytest.raises(ConfigError, match="must"):
            MetastaticDriver().getProviderConfig(provider).load(config)


def test_circle_of_several_providers(tmp_path: Path) -> None:
    """10: each alone is fine; the one that closes the circle is refused, with its line."""
    stands = [{"a": "b"}, {"b": "c", "d": "big"}, {"c": "a"}]
    sections = [
        section(*({"name": name, "backing-label": on} for name, on in each.items()), name=f"shared-{number}")
        for number, each in enumerate(stands)
    ]
    assert problems(tmp_path, *sections[:2]) == []
    (found,) = problems(tmp_path, *sections)
    assert "provider shared-2: label 'c' would stand on itself (c on a on b on c); backing-label must be" in found
    assert found.split(":")[0].isdecimal()


# -- records --

DATA = BackingData(owner_of("shared"), "small", 3, False, 12.5, ("0000000001", None, None))


@pytest.mark.parametrize(("changes", "expected"), driver_table("metastatic", "broken_values"), ids=str)
def test_values(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    """5.6: broken ones become harmless. What is read is written again."""
    wanted: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in expected.items()
    }
    found = BackingData.decode(json.dumps({**json.loads(DATA.encode()), **changes}))
    assert found == dataclasses.replace(DATA, **wanted)
    assert found is not None
    assert BackingData.decode(found.encode()) == found
    assert found.with_node(0, "0000000007").idle_since is None


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
