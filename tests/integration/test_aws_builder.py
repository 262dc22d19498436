# SPDX-License-Identifier: Apache-2.0
"""``nodepool-builder`` as a process beside the simulated region of AWS: it dies while AWS imports an image."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simulators.aws import AwsSimulator
from simulators.aws.cloud import Region
from tests.support.fake_builder import FakeBuilder, builder_of
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

PROVIDER = "ec2"


@pytest.fixture
def region(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsSimulator]:
    with AwsSimulator() as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        yield simulator
        assert simulator.state()["bugs"] == []


@pytest.fixture
def builder(
    region: AwsSimulator, tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes
) -> Iterator[FakeBuilder]:
    section = {
        "name": PROVIDER,
        "driver": "aws",
        "region-name": "us-east-1",
        "object-storage": {"bucket-name": "images"},
    }
    with builder_of(section, tmp_path, zookeeper, chroot, znodes) as made:
        yield made


def uploaded(builder: FakeBuilder, region: AwsSimulator) -> None:
    """Wait until there is one upload, ready, and nothing but its image in the region."""

    def look() -> bool:
        assert builder.running, builder.log_text()
        records = builder.uploads(PROVIDER)
        with region.cloud() as cloud:
            ours = [image_id for image_id in cloud.images.images if image_id != cloud.image_id]
            left = {kind: number for kind, number in cloud.left_of_uploads().items() if number}
        assert [record["state"] for record in records] == ["ready"]
        assert ours == [record["external_id"] for record in records]
        assert left == {}
        return True

    wait_for("it is uploaded", look)


def imports(region: AwsSimulator, ask: Callable[[Region], Any] = lambda cloud: list(cloud.imports.tasks)) -> Any:
    with region.cloud() as cloud:
        return ask(cloud)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_builder_ends_while_aws_imports(builder: FakeBuilder, region: AwsSimulator, number: signal.Signals) -> None:
    """AW-17, R-4, U-11: the next builder on that disk takes the import up again; the file is sent once."""
    region.change(import_seconds=1000)
    builder.start()
    wait_for("the import runs", lambda: imports(region))
    if number is signal.SIGKILL:
        builder.kill()
    else:
        assert builder.stop(number, seconds=60) == 0
    assert [record["state"] for record in builder.uploads(PROVIDER)] == ["uploading"]
    builder.start()
    wait_for("it is taken up", lambda: "is taken up again" in builder.log_text())
    with region.cloud() as cloud:
        (task,) = cloud.imports.tasks.values()
        cloud.imports.end(task)
    uploaded(builder, region)
    assert imports(region, lambda cloud: cloud.core.events["objects stored"]) == 1
    assert len(imports(region)) == 1


def test_image_that_is_not_wanted_any_more(builder: FakeBuilder, region: AwsSimulator) -> None:
    """R-3, R-4: an import that was interrupted ends when nobody wants its image."""
    region.change(import_seconds=1000, end_seconds=0)
    builder.start()
    wait_for("the import runs", lambda: imports(region))
    builder.kill()
    builder.extra["providers"][0]["diskimages"] = []
    builder.configure({})
    builder.start()
    wait_for("nothing is left", lambda: imports(region, lambda cloud: set(cloud.left_of_uploads().values())) == {0})
    assert not builder.uploads(PROVIDER)
