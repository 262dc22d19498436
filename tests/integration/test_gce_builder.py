# SPDX-License-Identifier: Apache-2.0
"""``nodepool-builder`` as a process beside the simulated project of Google: it dies while Google makes an image."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.gce import GceSimulator
from tests.support.fake_builder import FakeBuilder, builder_of
from tests.support.gce_place import gce_section
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

PROVIDER = "gce-a"


@pytest.fixture
def project() -> Iterator[GceSimulator]:
    with GceSimulator() as simulator:
        yield simulator
        assert simulator.state()["bugs"] == []


@pytest.fixture
def builder(
    project: GceSimulator, tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes
) -> Iterator[FakeBuilder]:
    section = gce_section(project.write_key_file(tmp_path / "key.json"), project.url, name=PROVIDER)
    with builder_of(section, tmp_path, zookeeper, chroot, znodes) as made:
        yield made


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_builder_ends_while_google_makes_an_image(
    builder: FakeBuilder, project: GceSimulator, number: signal.Signals
) -> None:
    """R-4, U-11: the next builder on that disk uses what was uploaded; the file is sent once, and one image is left."""
    project.change(image_seconds=1000)
    builder.start()
    wait_for("the image is made", lambda: project.state()["contents"]["images"])
    if number is signal.SIGKILL:
        builder.kill()
    else:
        assert builder.stop(number, seconds=60) == 0
    assert [record["state"] for record in builder.uploads(PROVIDER)] == ["uploading"]
    project.change(image_seconds=0.1)
    builder.start()

    def uploaded() -> bool:
        assert builder.running, builder.log_text()
        records = builder.uploads(PROVIDER)
        assert [record["state"] for record in records] == ["ready"]
        with project.cloud() as cloud:
            images = [image.name for image in cloud.resources.of("images") if image.document.get("labels")]
        assert images == [record["external_id"] for record in records]
        return True

    wait_for("it is uploaded", uploaded)
    state = project.state()
    assert (state["calls"]["objects.insert"], state["events"]["objects made"]) == (1, 1)
    assert (state["events"]["images made"], state["contents"]["objects"]) == (2, 0)
    assert not [name for name in builder.files() if name.endswith(".upload")]
