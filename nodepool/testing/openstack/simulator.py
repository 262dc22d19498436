# SPDX-License-Identifier: Apache-2.0
"""`OpenStackSimulator`: a cloud on a loopback port, for openstacksdk and everything that uses it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from nodepool.testing.openstack.application import CloudApplication
from nodepool.testing.openstack.cloud import Cloud
from nodepool.testing.openstack.http_server import HttpServer
from nodepool.testing.openstack.identity_api import PROJECT_NAME
from nodepool.testing.openstack.knobs import Knobs
from nodepool.testing.openstack.messages import Json
from nodepool.testing.openstack.network import NETWORKS, NetworkSpec

CLOUD_NAME = "simulator"


class OpenStackSimulator:
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
        self._cloud = Cloud(knobs, seed, clock, networks)
        self.application = CloudApplication(self._cloud)
        self._server = HttpServer(self.application, port=port)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{self._server.host}:{self._server.port}"

    def start(self) -> None:
        """Begins to answer. After `stop` it is the same cloud at the same address.

        :raises OSError: the port is taken.
        """
        self._server.start()

    def stop(self) -> None:
        """Closes the port and all connections; blocks until the thread ended. The cloud keeps what is in it."""
        self._server.stop()

    def __enter__(self) -> OpenStackSimulator:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @contextmanager
    def cloud(self) -> Iterator[Cloud]:
        """The cloud's present state, to look at or to change; no request is served meanwhile."""
        with self._cloud.core.lock:
            self._cloud.core.run_due()
            yield self._cloud

    def change(self, **changes: object) -> None:
        """Changes settings, named and written as in `Knobs.update`.

        :raises ValueError: an unknown name or a bad value.
        """
        with self.cloud() as cloud:
            cloud.core.knobs.update(changes)

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
