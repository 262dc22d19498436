# SPDX-License-Identifier: Apache-2.0
"""``nodepool-builder`` as a process beside AWS and Google: it ends while they make an image of what it has sent."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulators.aws import AwsSimulator
from simulators.gce import GceSimulator
from tests.support.clouds import gce_section
from tests.support.fake_builder import FakeBuilder, builder_of
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

PROVIDER = "cloud"


class Aws:
    """A region. AWS imports for so long as `end` is not called."""

    def __init__(self, simulator: AwsSimulator) -> None:
        self.simulator = simulator
        simulator.change(import_seconds=1000, end_seconds=0)

    def section(self, directory: Path) -> dict[str, Any]:
        return {
            "name": PROVIDER,
            "driver": "aws",
            "region-name": "us-east-1",
            "object-storage": {"bucket-name": "images"},
        }

    def runs(self) -> bool:
        with self.simulator.cloud() as cloud:
            return bool(cloud.imports.tasks)

    def end(self) -> None:
        with self.simulator.cloud() as cloud:
            (task,) = cloud.imports.tasks.values()
            cloud.imports.end(task)

    def images(self) -> list[str]:
        with self.simulator.cloud() as cloud:
            return [image_id for image_id in cloud.images.images if image_id != cloud.image_id]

    def left(self) -> dict[str, int]:
        """Of uploads, beside images."""
        with self.simulator.cloud() as cloud:
            return {kind: number for kind, number in cloud.left_of_uploads().items() if number}

    def sent_once(self) -> bool:
        with self.simulator.cloud() as cloud:
            return cloud.core.events["objects stored"] == len(cloud.imports.tasks) == 1


class Gce:
    """A project. It makes an image for so long as `end` is not called."""

    def __init__(self, simulator: GceSimulator) -> None:
        self.simulator = simulator
        simulator.change(image_seconds=1000)

    def section(self, directory: Path) -> dict[str, Any]:
        return gce_section(self.simulator.write_key_file(directory / "key.json"), self.simulator.url) | {
            "name": PROVIDER
        }

    def runs(self) -> bool:
        return bool(self.simulator.state()["contents"]["images"])

    def end(self) -> None:
        self.simulator.change(image_seconds=0.1)

    def images(self) -> list[str]:
        with self.simulator.cloud() as cloud:
            return [image.name for image in cloud.resources.of("images") if image.document.get("labels")]

    def left(self) -> dict[str, int]:
        number = self.simulator.state()["contents"]["objects"]
        return {"objects": number} if number else {}

    def sent_once(self) -> bool:
        state = self.simulator.state()
        return bool(state["calls"]["objects.insert"] == state["events"]["objects made"] == 1)


@pytest.fixture(params=[(AwsSimulator, Aws), (GceSimulator, Gce)], ids=["aws", "gce"])
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws | Gce]:
    make, words = request.param
    with make() as simulator:
        for name, value in getattr(simulator, "environment", {}).items():
            monkeypatch.setenv(name, value)
        yield words(simulator)
        assert simulator.state()["bugs"] == []


@pytest.fixture
def builder(
    cloud: Aws | Gce, tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes
) -> Iterator[FakeBuilder]:
    with builder_of(cloud.section(tmp_path), tmp_path, zookeeper, chroot, znodes) as made:
        made.start()
        wait_for("the cloud makes the image", cloud.runs)
        yield made


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_upload_that_is_taken_up_again(builder: FakeBuilder, cloud: Aws | Gce, number: signal.Signals) -> None:
    """AW-17, R-4, U-11: the next builder on that disk goes on with it; the file is sent once, and one image is left."""
    if number is signal.SIGKILL:
        builder.kill()
    else:
        assert builder.stop(number, seconds=60) == 0
    assert [record["state"] for record in builder.uploads(PROVIDER)] == ["uploading"]
    if isinstance(cloud, Gce):
        cloud.end()
    builder.start()
    if isinstance(cloud, Aws):
        wait_for("it is taken up", lambda: "is taken up again" in builder.log_text())
        cloud.end()

    def uploaded() -> bool:
        assert builder.running, builder.log_text()
        records = builder.uploads(PROVIDER)
        assert [record["state"] for record in records] == ["ready"]
        assert (cloud.images(), cloud.left()) == ([record["external_id"] for record in records], {})
        return True

    wait_for("it is uploaded", uploaded)
    assert cloud.sent_once()
    assert not [name for name in builder.files() if name.endswith(".upload")]


@pytest.mark.parametrize("cloud", [(AwsSimulator, Aws)], indirect=True)
def test_image_that_is_not_wanted_any_more(builder: FakeBuilder, cloud: Aws) -> None:
    """R-3, R-4: an import that was interrupted ends when its image is not wanted any more."""
    builder.kill()
    builder.extra["providers"][0]["diskimages"] = []
    builder.configure({})
    builder.start()
    wait_for("nothing is left", lambda: cloud.left() == {})
    assert not builder.uploads(PROVIDER)
