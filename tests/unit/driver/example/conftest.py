# SPDX-License-Identifier: Apache-2.0
"""The cloud of the example driver, and an adapter of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.example import ExampleDriver
from nodepool.driver.example.adapter import ExampleAdapter
from nodepool.driver.example.config import ExampleProviderConfig
from simulators.example_cloud import ExampleCloud


@pytest.fixture
def cloud() -> Iterator[ExampleCloud]:
    with ExampleCloud() as cloud:
        yield cloud


@pytest.fixture
def section(cloud: ExampleCloud) -> dict[str, Any]:
    """A provider section with a label of each kind of image."""
    return {
        "name": "somewhere",
        "driver": "example",
        "url": f"{cloud.url}/",
        "rate": 0,
        "diskimages": [{"name": "fedora", "meta": {"colour": "blue"}}],
        "cloud-images": [{"name": "debian", "username": "debian"}],
        "pools": [
            {
                "name": "main",
                "max-cores": 8,
                "availability-zones": ["north"],
                "labels": [
                    {"name": "built", "diskimage": "fedora", "size": "small", "console-log": True},
                    {"name": "small", "cloud-image": "debian", "size": "small"},
                ],
            }
        ],
    }


@pytest.fixture
def configuration() -> Config:
    """What stands at the top level."""
    config = Config()
    config.labels = {name: Label(name) for name in ("built", "small")}
    config.diskimages = {"fedora": DiskImage("fedora")}
    return config


@pytest.fixture
def provider_config(section: dict[str, Any], configuration: Config) -> ExampleProviderConfig:
    provider_config = ExampleDriver().getProviderConfig(section)
    provider_config.getSchema()(section)
    provider_config.load(configuration)
    return provider_config


@pytest.fixture
def adapter(provider_config: ExampleProviderConfig) -> Iterator[ExampleAdapter]:
    adapter = ExampleDriver().getAdapter(provider_config)
    yield adapter
    adapter.stop()
