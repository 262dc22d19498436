# SPDX-License-Identifier: Apache-2.0
"""A launcher of Nodepool 11.0.0 beside a new image that is tried: it uses the old one until the new one is promoted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.cmd.cli import main
from tests.support.image_place import IMAGE, ImagePlace
from tests.support.launcher import LauncherProcess
from tests.support.local_launcher import LocalLauncher
from tests.support.logging_state import kept_logging
from tests.support.pool_znodes import PoolZnodes
from tests.support.released import released_programs
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture
def place(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> Iterator[ImagePlace]:
    made = ImagePlace(tmp_path, zookeeper, chroot, znodes)
    made.providers = ["cloud-a"]
    made.image_settings["promote"] = {"canary": "50%", "for": "1d"}
    made.start()
    yield made
    made.stop()


def booted(place: ImagePlace, number: int) -> set[str]:
    """Images of nodes that a released launcher makes."""
    file = place.directory / f"released{number}.yaml"
    LocalLauncher(file, place.zookeeper, place.chroot, place.settings())
    environment = {"OS_CLIENT_CONFIG_FILE": str(place.clouds_file)}
    log, command = place.directory / f"released{number}.log", [str(released_programs().launcher)]
    launcher = LauncherProcess(file, log, command, environment=environment)
    launcher.start()
    try:
        # It takes its time on a busy machine.
        wait_for("it is registered", place.znodes.pools, 150.0)
        return {place.boot() for _ in range(4)}
    finally:
        launcher.stop(signal.SIGINT, seconds=60)


@pytest.mark.timeout(400)
def test_released_launcher_uses_the_old_image(place: ImagePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """CA-1, CA-8: with a builder of ours, and before and after one of our launchers has tried it."""
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(place.clouds_file))
    place.add_builder().start()
    old = str((place.ready()[0].record or {})["external_id"])
    place.records.request_build(IMAGE)
    wait_for("the next one is a candidate", lambda: len(place.image().uploads("cloud-a", "ready")) == 2, 60.0)
    assert booted(place, 1) == {old}
    place.launch()
    for _ in range(4):
        place.boot()
    with kept_logging():
        assert main(["-c", str(place.directory / "launcher.yaml"), "image-promote", "cloud-a", IMAGE]) == 0
    new = str((place.image().current("cloud-a").record or {})["external_id"])  # type: ignore[union-attr]
    assert new != old
    assert place.launcher is not None
    place.launcher.stop()
    place.launcher = None
    assert booted(place, 2) == {new}
