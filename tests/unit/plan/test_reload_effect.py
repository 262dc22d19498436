# SPDX-License-Identifier: Apache-2.0
"""What a daemon would do with a changed configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.plan.config_diff import reload_effects

HOST = {"name": "h", "labels": ["small"]}
BASE = {
    "zookeeper-servers": [{"host": "zk1", "chroot": "/a"}],
    "zookeeper-tls": {"cert": "/c.pem", "key": "/k.pem", "ca": "/ca.pem"},
    "labels": [{"name": "small"}],
    "providers": [{"name": "lab", "driver": "static", "pools": [{"name": "main", "nodes": [HOST]}]}],
}


Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(**changes: object) -> Config:
        path = tmp_path / "nodepool.yaml"
        path.write_text(yaml.safe_dump({**BASE, **changes}), encoding="utf-8")
        return load_config(str(path))

    return load


def effects(load: Load, refused: dict[str, str] | None = None, **changes: object) -> dict[str, str]:
    """Name of each change -> what follows."""
    found = reload_effects(load(), load(**changes), refused or {})
    return {effect.change.name: effect.effect for effect in found}


def static(name: str, **pool: object) -> dict[str, object]:
    return {"name": name, "driver": "static", "pools": [{"name": "main", "nodes": [HOST], **pool}]}


def test_nothing_changes(load: Load) -> None:
    assert effects(load) == {}


def test_providers(load: Load) -> None:
    """G-5, G-6"""
    found = effects(load, providers=[static("lab", priority=1), static("rack")])
    assert "started anew" in found["lab"]
    assert found["rack"] == "the provider is started, and its pools serve requests"
    assert "the provider is stopped" in effects(load, providers=[])["lab"]


def test_refused_sections(load: Load) -> None:
    """G-8: one that runs goes on as it is; then its section is no change of what runs."""
    found = effects(load, {"lab": "bad", "rack": "worse"}, providers=[static("lab"), static("rack")])
    assert found == {
        "lab": "the new section is refused, the running one goes on with its old section: bad",
        "rack": "the new section is refused, it is not served: worse",
    }


def test_labels(load: Load) -> None:
    found = effects(load, labels=[{"name": "big"}], providers=[])
    assert found["small"] == "requests for it are declined"
    assert found["big"] == ""


def setting(load: Load, name: str, value: object) -> tuple[str, str]:
    """Which setting changes, and what follows."""
    (effect,) = reload_effects(load(), load(**{name: value}), {})
    return effect.change.name, effect.effect


def test_settings(load: Load) -> None:
    """G-13"""
    tls = {"cert": "/c.pem", "key": "/other.pem", "ca": "/ca.pem"}
    assert setting(load, "zookeeper-tls", tls) == ("zookeeper-tls.key", "takes effect after a restart")
    assert setting(load, "zookeeper-timeout", 20) == ("zookeeper-timeout", "takes effect after a restart")
    assert "without a restart" in setting(load, "zookeeper-servers", [{"host": "zk2", "chroot": "/a"}])[1]
    assert "after a restart" in setting(load, "zookeeper-servers", [{"host": "zk1", "chroot": "/b"}])[1]
    assert setting(load, "max-hold-age", 5) == ("max-hold-age", "")


def test_json(load: Load) -> None:
    (effect,) = reload_effects(load(), load(providers=[]), {})
    assert effect.to_dict() == {
        "kind": "provider",
        "name": "lab",
        "what": "removed",
        "details": (),
        "effect": effect.effect,
    }
