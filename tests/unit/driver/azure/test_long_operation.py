# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.azure.images`: operations are followed to their end (AZ-12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.azure import client as c
from nodepool.driver.azure import images
from nodepool.driver.azure.images import follow
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudRefused
from nodepool.driver.framework.http.rest_calls import RestAnswer
from nodepool.exceptions import ImageCreateException
from tests.support.manual_clock import ManualClock
from tests.unit.driver.azure.support import Here, at_simulator, section

NO_ROOM = {"code": "ResourceOperationFailure", "message": "It failed.", "details": [{"code": "AllocationFailed"}]}
DISK = {"location": "northeurope", "properties": {"creationData": {"createOption": "Upload", "uploadSizeBytes": 512}}}


@pytest.fixture(params=[False, True], ids=["told", "by-location"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Here]:
    settings = {"only_location": request.param, "retry_after_seconds": 0, "boot_seconds": (60, 60)}
    with at_simulator(tmp_path, section(), **settings) as made:
        yield made


def order(here: Here) -> RestAnswer:
    return here.adapter.client.request(c.WRITE, "PUT", c.DISKS, "d1", "creating a disk", body=DISK)


def end(here: Here, error: dict[str, Any] | None = None, output: dict[str, Any] | None = None) -> None:
    with here.simulator.cloud() as cloud:
        (operation,) = cloud.operations.all()
        cloud.operations.end(operation.id, error, output)


def finish(here: Here, answer: RestAnswer, **more: Any) -> Any:
    return follow(here.adapter.client, answer, "disk d1", ManualClock(), **more)


def test_output(here: Here) -> None:
    """AZ-12: as long as it runs it is looked at again."""
    answer, looks = order(here), iter(range(10))

    def wanted() -> None:
        if next(looks) == 1:
            end(here, output={"name": "d1"})

    assert finish(here, answer, wanted=wanted) == {"name": "d1"}
    assert here.calls("diskOperations.get") == 3


def test_failure(here: Here) -> None:
    """AZ-10, AZ-12: what says something may be in a detail."""
    answer = order(here)
    end(here, NO_ROOM)
    with pytest.raises(CloudNoCapacity, match="AllocationFailed"):
        finish(here, answer)


def test_it_takes_too_long(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "OPERATION_SECONDS", 0.0)
    with pytest.raises(ImageCreateException, match="disk d1 took more than 0 s"):
        finish(here, order(here))


def test_nobody_wants_it(here: Here) -> None:
    """AZ-12: what waits for it may be given up."""

    def unwanted() -> None:
        raise RuntimeError("not wanted")

    with pytest.raises(RuntimeError, match="not wanted"):
        finish(here, order(here), wanted=unwanted)


@pytest.mark.parametrize("header", ["Azure-AsyncOperation", "Location"])
def test_operation_at_another_host(here: Here, header: str) -> None:
    """No other host is to see our token."""
    with pytest.raises(CloudAway, match="another host"):
        finish(here, RestAnswer(202, None, {header: "https://elsewhere.test/operations/1"}))


def test_no_operation(here: Here) -> None:
    """It is done already; ``Location`` of another status is where the new resource is."""
    assert finish(here, RestAnswer(200, {"name": "d1"}, {})) == {"name": "d1"}
    assert finish(here, RestAnswer(201, {"name": "d1"}, {"Location": "https://elsewhere.test/d1"})) == {"name": "d1"}


def test_unknown_end(tmp_path: Path) -> None:
    """What is neither success nor a failure that is told."""
    with at_simulator(tmp_path, section(), retry_after_seconds=0, boot_seconds=(60, 60)) as here:
        answer = order(here)
        with here.simulator.cloud() as cloud:
            (operation,) = cloud.operations.all()
            operation.status = "Canceled"
        with pytest.raises(CloudRefused, match="ended as 'canceled'"):
            finish(here, answer)
