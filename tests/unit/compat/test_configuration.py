# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodepool.compat.modules import as_list, get_provider_config, loadConfig
from nodepool.config.objects import Config, DiskImage
from nodepool.driver.static.config import StaticProviderConfig


@pytest.mark.parametrize(
    ("item", "wanted"), [(None, []), ("a", ["a"]), (["a"], ["a"]), (0, []), ({"a": 1}, [{"a": 1}])]
)
def test_as_list(item: Any, wanted: list[Any]) -> None:
    assert as_list(item) == wanted


def test_get_provider_config() -> None:
    made = get_provider_config({"name": "lab", "driver": "static"})
    assert isinstance(made, StaticProviderConfig)
    assert made.name == "lab"


def test_load_config(tmp_path: Path) -> None:
    path = tmp_path / "nodepool.yaml"
    path.write_text(
        "zookeeper-servers: [{host: localhost}]\nzookeeper-tls: {cert: a, key: b, ca: c}\nlabels: [{name: small}]\n",
        encoding="utf-8",
    )
    config = loadConfig(str(path))
    assert isinstance(config, Config)
    assert list(config.labels) == ["small"]


def test_names_of_a_diskimage() -> None:
    """What drivers read of the images of the top level."""
    image = DiskImage("debian")
    image.metadata, image.keep_formats = {"a": "b"}, ["raw"]
    assert (image.meta, image.keep_image_types) == ({"a": "b"}, {"raw"})
