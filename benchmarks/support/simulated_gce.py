# SPDX-License-Identifier: Apache-2.0
"""The simulated Google project as a process of its own, and a provider that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.support.simulated_cloud import LABEL
from benchmarks.support.simulator_process import simulator_process
from nodepool.testing.gce import GceSimulatorClient
from nodepool.testing.gce.cloud import FAMILY, ZONE
from nodepool.testing.gce.links import IMAGE_PROJECT, PROJECT
from tests.support.section_provider import SectionProvider


def gce_provider(key_file: Path, url: str, rate: float | None = None) -> SectionProvider:
    """A provider with one pool and one label.

    :param key_file: of the service account; ``url``: of Compute Engine.
    :param rate: None = the default.
    """
    image = {
        "name": "debian",
        "image-project": IMAGE_PROJECT,
        "image-family": FAMILY,
        "username": "zuul",
        "key": "ssh-ed25519 AAAA",
    }
    label = {"name": LABEL, "cloud-image": "debian", "instance-type": "n1-standard-1"}
    section: dict[str, Any] = {
        "name": "gce-one",
        "driver": "gce",
        "project": PROJECT,
        "region": "us-central1",
        "zone": ZONE,
        "endpoint": url,
        "credentials-file": str(key_file),
        "boot-timeout": 300,
        **({} if rate is None else {"rate": rate}),
        "cloud-images": [image],
        "pools": [{"name": "main", "max-servers": 1000, "host-key-checking": False, "labels": [label]}],
    }
    return SectionProvider(section)


@contextmanager
def simulated_project(directory: Path, settings: dict[str, Any]) -> Iterator[tuple[GceSimulatorClient, Path]]:
    """Starts it; gives a client, and the path of the key of the service account. The process ends with the block.

    :param settings: as `nodepool.testing.gce.GceSettings`.
    """
    key_file = directory / "key.json"
    options = ["--key-file", str(key_file)]
    with simulator_process("nodepool.testing.gce", GceSimulatorClient, directory, settings, options) as client:
        yield client, key_file
