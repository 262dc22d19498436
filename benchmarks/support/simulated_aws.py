# SPDX-License-Identifier: Apache-2.0
"""The simulated AWS region, or moto, as a process of its own, and a provider that uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.support.environment import environment_with
from benchmarks.support.simulated_cloud import LABEL
from benchmarks.support.simulator_process import simulator_process
from simulators.aws import AwsSimulatorClient, environment
from simulators.aws.images import IMAGE_NAME
from simulators.base.client import AdminClient
from tests.support.moto_server import KEY_NAME, REGION, MotoServer

#: A call in the log of moto's web server.
_CALL: Final = re.compile(r'"(?:POST|GET) / HTTP')


@dataclass
class AwsProvider:
    """A provider with one pool and one label.

    :param image_name: of an AMI.
    """

    image_name: str = IMAGE_NAME
    name: str = "region-one"

    @property
    def labels(self) -> Iterable[str]:
        return [LABEL]

    @property
    def slots(self) -> int:
        return 0

    def as_config(self) -> dict[str, Any]:
        label = {"name": LABEL, "cloud-image": "debian", "instance-type": "t3.small", "key-name": KEY_NAME}
        # That of the region is known to a client of its API only.
        image = {
            "name": "debian",
            "username": "admin",
            "image-filters": [{"name": "name", "values": [self.image_name]}],
        }
        return {
            "name": self.name,
            "driver": "aws",
            "region-name": REGION,
            "boot-timeout": 300,
            "cloud-images": [image],
            "pools": [{"name": "main", "host-key-checking": False, "labels": [label]}],
        }


@contextmanager
def simulated_region(directory: Path, settings: dict[str, Any]) -> Iterator[AwsSimulatorClient]:
    """Starts it and tells launchers, which inherit the environment, where it is. The process ends with the block.

    :param settings: as `simulators.aws.AwsSettings`.
    """
    with (
        simulator_process("simulators.aws", AwsSimulatorClient, directory, settings) as client,
        environment_with(environment(client.url)),
    ):
        yield client


class MotoCloud(AdminClient):
    """moto, as the benchmarks look at a simulated cloud. It boots and ends instances at once, and counts no calls
    itself: its log has them.
    """

    def __init__(self, server: MotoServer, log: Path) -> None:
        super().__init__(server.url)
        self._server = server
        self._log = log
        self._own = 0
        self._before = 0

    def state(self) -> dict[str, Any]:
        calls = len(_CALL.findall(self._log.read_text(encoding="utf-8", errors="replace"))) - self._own
        live = sum(1 for _ in self._server.instances())
        self._own += 1
        return {
            "calls": {"all": calls - self._before},
            "contents": {"instances": live},
            "peak_instances": 0,
            "double_nodes": [],
        }

    def knobs(self) -> dict[str, Any]:
        return {"boot_seconds": [0.0, 0.0], "end_seconds": [0.0, 0.0]}

    def reset_counters(self) -> dict[str, Any]:
        before = self.state()
        self._before += before["calls"]["all"]
        return before


@contextmanager
def moto_region(directory: Path) -> Iterator[tuple[MotoCloud, str]]:
    """The same with moto; gives also the name of one of its images.

    moto has no Service Quotas, without which the released driver does not launch: the simulated region answers that.
    """
    server = MotoServer(directory)
    server.start()
    try:
        server.reset()
        (image,) = server.ec2.describe_images(ImageIds=[server.image_id()])["Images"]
        with simulated_region(directory, {}) as quotas:
            # moto takes any credentials, and the region those that are set already.
            own = {name: value for name, value in server.environment.items() if "KEY" not in name}
            with environment_with({**own, "AWS_ENDPOINT_URL_SERVICE_QUOTAS": quotas.url}):
                yield MotoCloud(server, directory / "moto.log"), str(image["Name"])
    finally:
        server.stop()
