# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests on a real cloud, the one that ``OS_CLOUD`` names in clouds.yaml."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from openstack.config import OpenStackConfig

from tests.functional.openstack.cloud import RealCloud
from tests.functional.openstack.place import OpenStackProvider, Place
from tests.support.workplace import Workplace
from tests.support.zuul_client import ZuulClient
from tests.support.zuul_fixtures import zuul, zuul_log

__all__ = ["zuul", "zuul_log"]


@pytest.fixture(scope="session")
def clouds() -> Iterator[Callable[[str], RealCloud]]:
    """Connects to clouds of clouds.yaml by name. A test that needs one that is not there is skipped."""
    connected: dict[str, RealCloud] = {}

    def connect(name: str) -> RealCloud:
        if name not in OpenStackConfig().get_cloud_names():
            pytest.skip(f"clouds.yaml has no cloud {name!r}; the rig has")
        if name not in connected:
            connected[name] = RealCloud(name)
        return connected[name]

    yield connect
    for cloud in connected.values():
        cloud.close()


@pytest.fixture
def cloud(clouds: Callable[[str], RealCloud], request: pytest.FixtureRequest) -> RealCloud:
    """The cloud under test; ``@pytest.mark.parametrize("cloud", [...], indirect=True)`` names another one."""
    name = getattr(request, "param", None) or os.environ.get("OS_CLOUD")
    if not name:
        pytest.fail("no cloud is named; tools/functional-openstack says what is needed", pytrace=False)
    return clouds(name)


@pytest.fixture
def provider(cloud: RealCloud) -> OpenStackProvider:
    """Configuration for the cloud; to be changed before `Place.launch`."""
    return OpenStackProvider(cloud)


@pytest.fixture
def place(cloud: RealCloud, workplace: Workplace, zuul: ZuulClient) -> Iterator[Place]:
    """Where a test works. It must have emptied it in the end: `Place.wait_empty`.

    What a test that failed left behind is removed, so that the next one can work.
    """
    made = Place(cloud, workplace, zuul)
    yield made
    workplace.stop()
    cloud.remove_all_but(made.before)
