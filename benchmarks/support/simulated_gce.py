# SPDX-License-Identifier: Apache-2.0
"""The simulated Google project as a process of its own, and a provider that uses it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.support.environment import environment_with
from benchmarks.support.public_cloud import public_cloud
from benchmarks.support.simulated_cloud import LABEL
from benchmarks.support.simulator_process import simulator_process
from simulators.gce import GceSimulatorClient
from simulators.gce.cloud import FAMILY, ZONE
from simulators.gce.links import IMAGE_PROJECT, PROJECT
from tests.support.section_provider import SectionProvider

#: Google's own address, and the only one that the released driver knows.
HOSTS: Final = ("compute.googleapis.com",)


def gce_provider(place: tuple[Path, str] | None, rate: float | None = None) -> SectionProvider:
    """A provider with one pool and one label.

    :param place: file with the key of the service account, and address of Compute Engine; None = those of the
        environment, see `public_project`.
    :param rate: None = the default.
    """
    own = {} if place is None else {"credentials-file": str(place[0]), "endpoint": place[1]}
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
        **own,
        "boot-timeout": 300,
        **({} if rate is None else {"rate": rate}),
        "cloud-images": [image],
        "pools": [{"name": "main", "max-servers": 1000, "host-key-checking": False, "labels": [label]}],
    }
    return SectionProvider(section)


@contextmanager
def simulated_project(directory: Path, settings: dict[str, Any]) -> Iterator[tuple[GceSimulatorClient, Path]]:
    """Starts it; gives a client, and the path of the key of the service account. The process ends with the block.

    :param settings: as `simulators.gce.GceSettings`.
    """
    key_file = directory / "key.json"
    options = ["--key-file", str(key_file)]
    with simulator_process("simulators.gce", GceSimulatorClient, directory, settings, options) as client:
        yield client, key_file


@contextmanager
def public_project(directory: Path, url: str, key_file: Path) -> Iterator[str]:
    """The project at Google's own address, for launchers that inherit the environment. Gives its other address.

    The account is that of the application default credentials.

    :param url: of the simulator.
    """
    with public_cloud(directory, url, HOSTS) as direct:
        # httplib2, which Google's client makes its calls with, has a variable of its own.
        variables = {"HTTPLIB2_CA_CERTS": os.environ["REQUESTS_CA_BUNDLE"]}
        with environment_with({**variables, "GOOGLE_APPLICATION_CREDENTIALS": str(key_file)}):
            yield direct
