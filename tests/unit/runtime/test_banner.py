# SPDX-License-Identifier: Apache-2.0
"""What a daemon says of itself (rule J-9)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config.loader import load_config
from nodepool.config.objects import Config
from nodepool.runtime import banner

BASE: dict[str, Any] = {
    "zookeeper-servers": [{"host": "zk1"}, {"host": "zk2", "port": 99, "chroot": "/zuul"}],
    "zookeeper-tls": {"cert": "/c.pem", "key": "/k.pem", "ca": "/ca.pem"},
}
Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(**keys: Any) -> Config:
        path = tmp_path / "nodepool.yaml"
        path.write_text(yaml.safe_dump({**BASE, **keys}), encoding="utf-8")
        return load_config(str(path))

    return load


def lab(name: str, *pools: str, label: str = "small") -> dict[str, Any]:
    nodes = [{"name": "host1", "labels": [label]}]
    return {"name": name, "driver": "static", "pools": [{"name": pool, "nodes": nodes} for pool in pools]}


def test_sources(load: Load) -> None:
    """J-9."""
    config = load()
    assert banner.sources(config, "/n.yaml", None) == "Configuration: /n.yaml; ZooKeeper: zk1:2281, zk2:99/zuul"
    assert banner.sources(config, "/n.yaml", "/s.yaml").startswith("Configuration: /n.yaml and /s.yaml; ")


def test_served(load: Load) -> None:
    """J-9: also what is configured and cannot be served."""
    config = load(
        labels=[{"name": "small"}, {"name": "big"}, {"name": "odd"}],
        providers=[lab("lab-1", "rack-1"), lab("lab-2", "main", label="big"), {"name": "c", "driver": "gce"}],
    )
    assert banner.served(config) == (
        "Serving 2 providers: lab-1 (static: rack-1); lab-2 (static: main). 2 labels: big, small. "
        "1 label without a pool: odd. Not usable: 1 provider: c"
    )


def test_nothing(load: Load) -> None:
    assert banner.served(load()) == "Serving no provider. no label"
    assert banner.built(load()) == "Building no diskimage. Uploading to no provider"


def test_bounded(load: Load) -> None:
    """J-9: a line, whatever the site."""
    names = [f"p{number:03d}" for number in range(100)]
    text = banner.served(load(labels=[{"name": "small"}], providers=[lab(name, *names) for name in names]))
    assert text.startswith("Serving 100 providers: p000 (static: p000, p001")
    assert " and 70 more)" in text
    assert len(text) < 8000


def test_built(load: Load) -> None:
    """J-9."""
    config = load(
        diskimages=[{"name": "base", "abstract": True}, {"name": "debian", "elements": ["vm"]}],
        providers=[
            lab("lab-1", "main", label="small"),
            {"name": "f", "driver": "fake", "diskimages": [{"name": "debian"}]},
        ],
        labels=[{"name": "small"}],
    )
    assert banner.built(config) == "Building 1 diskimage: debian. Uploading to 1 provider: f"
