# SPDX-License-Identifier: Apache-2.0
"""Launches, deletions and uploads that wait longer for our own limits than the cloud may take.

With the real drivers in simulated worlds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.aws import client as aws
from nodepool.driver.gce import client as gce
from nodepool.driver.ibmvpc import client as ibmvpc
from nodepool.driver.statemachine import deletion as statemachine
from tests.model.aws_cloud import AwsWorld
from tests.model.azure_cloud import AzureWorld
from tests.model.gce_cloud import GceWorld
from tests.model.ibmvpc_cloud import IbmWorld
from tests.model.layout import CLOUD
from tests.model.openstack_cloud import OpenStackWorld
from tests.model.setup import Setup
from tests.model.world import World

LAUNCH_SECONDS = 10
NODES = 8


def _aws(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    # Launches that wait would go in one call.
    patch.setattr("nodepool.driver.aws.launches.MOST", 1)
    patch.setattr(aws, "_BURST_PART", 0.01)
    return {"rate": 0.25}


def _azure(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"rate": 0.5}


def _gce(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    patch.setattr(gce, "CALLS_A_MINUTE", 1)
    return {"rate": 0.25}


def _ibmvpc(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    patch.setattr(ibmvpc, "BURST", 1)
    return {"rate": 0.25}


def _openstack(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    # A pause, other than elsewhere.
    return {"rate": 2.5}


def configure(patch: pytest.MonkeyPatch, world: World, **settings: Any) -> None:
    """The launcher of a world has these in its provider."""
    plain = world.cloud.provider_config

    def provider_config(*arguments: Any) -> Any:
        config = plain(*arguments)
        config.provider.update(settings)
        return config

    patch.setattr(world.cloud, "provider_config", provider_config)
    world.launchers[0].die()
    world.moves.do_restart(0)


def launch_all(world: World) -> float:
    """How long it took."""
    begun = world.now
    for _ in range(NODES):
        world.zuul.submit(["small"])
    world.run_seconds(1.0)
    assert len(world.zuul.waiting) == NODES
    while world.zuul.waiting and world.now < begun + 1000:
        world.run_seconds(1.0)
        world.zuul.take()
    assert world.cloud.creations == NODES
    return world.now - begun


@pytest.mark.parametrize(
    ("make_world", "slow_down"),
    [
        (AwsWorld, _aws),
        (AzureWorld, _azure),
        (GceWorld, _gce),
        (IbmWorld, _ibmvpc),
        (OpenStackWorld, _openstack),
    ],
)
def test_time_in_our_own_limits_is_not_that_of_the_cloud(
    monkeypatch: pytest.MonkeyPatch,
    make_world: Callable[[Setup], World],
    slow_down: Callable[[pytest.MonkeyPatch], dict[str, Any]],
) -> None:
    """L-5: it does not count against launch-timeout. No launch fails, and no request: that would be a violation."""
    with make_world(Setup(launchers=1, max_servers=NODES, boot_seconds=2.0)) as world:
        settings = {"launch-timeout": LAUNCH_SECONDS, "launch-retries": 1, **slow_down(monkeypatch)}
        configure(monkeypatch, world, **settings)
        assert launch_all(world) > 2 * LAUNCH_SECONDS, "else this says nothing"
        world.play([])


class Errors(logging.Handler):
    """What a launcher logs as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


OPENSTACK = pytest.mark.parametrize(("make_world", "slow_down"), [(OpenStackWorld, _openstack)])


@OPENSTACK
def test_nor_does_it_count_against_the_time_of_a_deletion(
    monkeypatch: pytest.MonkeyPatch,
    make_world: Callable[[Setup], World],
    slow_down: Callable[[pytest.MonkeyPatch], dict[str, Any]],
) -> None:
    errors = Errors()
    with make_world(Setup(launchers=1, max_servers=NODES, boot_seconds=2.0)) as world:
        configure(monkeypatch, world, **slow_down(monkeypatch))
        launch_all(world)
        # Lists that show that servers have gone come a few seconds after that.
        monkeypatch.setattr(statemachine, "DELETE_SECONDS", 2 * LAUNCH_SECONDS)
        logging.getLogger("nodepool").addHandler(errors)
        begun = world.now
        for _ in range(len(world.zuul.held)):
            world.zuul.release(0)
        while world.cloud.servers() and world.now < begun + 1000:
            world.run_seconds(1.0)
        assert world.now - begun > 2 * LAUNCH_SECONDS, "else this says nothing"
        world.play([])
    assert errors.texts == []


@OPENSTACK
def test_nor_does_it_count_against_the_time_of_an_upload(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    make_world: Callable[[Setup], World],
    slow_down: Callable[[pytest.MonkeyPatch], dict[str, Any]],
) -> None:
    """Several at once: each call of one waits for those of the others."""
    file = tmp_path / "image.qcow2"
    file.write_bytes(b"QFI\xfb" + bytes(508))
    with make_world(Setup(launchers=1, max_servers=NODES)) as world:
        configure(monkeypatch, world, **slow_down(monkeypatch), **{"image-upload-timeout": 2 * LAUNCH_SECONDS})
        world.run_seconds(5.0)
        launcher: Any = world.launchers[0]
        provider = launcher.nodepool.providers.running[CLOUD]
        begun, ends = world.now, []

        def upload(number: int) -> None:
            image = SimpleNamespace(meta={})
            assert provider.uploadImage(image, f"image-{number}", str(file), "qcow2", {"nodepool_build_id": "1"})
            ends.append(world.now)

        for number in range(NODES):
            world.spawn(f"upload-{number}", launcher, lambda number=number: upload(number))  # type: ignore[misc]
        while len(ends) < NODES and world.now < begun + 1000:
            world.run_seconds(1.0)
        assert len(ends) == NODES
        assert max(ends) - begun > 5 * LAUNCH_SECONDS, "else this says nothing"
        world.play([])
