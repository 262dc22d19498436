# SPDX-License-Identifier: Apache-2.0
"""`OpenStackSimulator`: a cloud on a loopback port, for openstacksdk and everything that uses it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import yaml

from simulators.base.simulator import Simulator
from simulators.openstack.application import CloudApplication
from simulators.openstack.cloud import Cloud
from simulators.openstack.identity_api import PROJECT_NAME
from simulators.openstack.knobs import Knobs
from simulators.openstack.messages import Json
from simulators.openstack.network import NETWORKS, NetworkSpec

CLOUD_NAME = "simulator"


class OpenStackSimulator(Simulator[Cloud]):
    """A cloud with memory. Use it as a context manager, or call `start` and `stop`.

    :param knobs: settings to begin with; change them at any time with `change`.
    :param seed: the same seed, settings and order of calls give the same times and faults.
    :param port: 0 chooses a free one.
    :param clock: seconds since the epoch, for tests that make time pass.
    """

    def __init__(
        self,
        knobs: Knobs | None = None,
        seed: int = 0,
        port: int = 0,
        networks: tuple[NetworkSpec, ...] = NETWORKS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        cloud = Cloud(knobs, seed, clock, networks)
        self.application = CloudApplication(cloud)
        super().__init__(cloud, cloud.core, self.application, port)

    def state(self) -> Json:
        """Counters, contents and peaks, as ``GET /admin/state`` gives them."""
        with self.cloud():
            return self.application.admin.state()

    def write_clouds_yaml(self, path: str | os.PathLike[str], name: str = CLOUD_NAME, **settings: object) -> Path:
        """Writes a clouds.yaml with this cloud; one that is there is replaced at once, as a careful editor does.

        :param settings: more settings of the cloud, for example ``image_format="raw"``.
        """
        content = self.clouds_yaml_entry()
        file = Path(path)
        new = file.with_name(f".{file.name}.new")
        new.write_text(yaml.safe_dump({"clouds": {name: content | settings}}), encoding="utf-8")
        return new.replace(file)

    def clouds_yaml_entry(self) -> Json:
        """What a clouds.yaml says of this cloud, with the password that is right now."""
        with self.cloud() as cloud:
            knobs = cloud.core.knobs
            return {
                "auth": {
                    "auth_url": f"{self.url}/identity",
                    "username": knobs.username,
                    "password": knobs.password,
                    "project_name": PROJECT_NAME,
                    "user_domain_name": "Default",
                    "project_domain_name": "Default",
                },
                "region_name": knobs.regions[0],
                "identity_api_version": 3,
            }
