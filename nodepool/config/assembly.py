# SPDX-License-Identifier: Apache-2.0
"""Documents to a `Config`, section by section."""

from __future__ import annotations

from nodepool.config.marks import Document
from nodepool.config.objects import Config, Label
from nodepool.config.problems import Problems
from nodepool.config.zookeeper import ZooKeeperReader
from nodepool.driver.registry import Drivers


def assemble(main: Document, secure: Document | None, problems: Problems) -> Config:
    """Make the configuration; what is wrong goes to ``problems``, and then the result is not complete."""
    config = Config()
    config.path = main.path
    reader = ZooKeeperReader(config, problems)
    reader.read(main)
    if secure is not None:
        reader.read(secure, secure=True)
    data = main.data
    for label in data.get("labels", []):
        config.labels[label["name"]] = Label(label["name"], label.get("min-ready", 0), label.get("max-ready-age", 0))
    for section in data.get("providers", []):
        provider = Drivers.get(section.get("driver", "openstack")).getProviderConfig(section)
        provider.load(config)
        config.providers[provider.name] = provider
    return config
