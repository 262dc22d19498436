# SPDX-License-Identifier: Apache-2.0
"""The cloud in memory behaves like one, so that what is tested with it is tested."""

from __future__ import annotations

import threading

import pytest

from nodepool.driver.fake.cloud import (
    ACTIVE,
    BUILDING,
    DELETING,
    ERROR,
    Cancelled,
    CloudError,
    FakeCloud,
    FakeInstance,
    NoSuchInstance,
    OverQuota,
)


def create(cloud: FakeCloud, **resources: float) -> FakeInstance:
    return cloud.create("np1", metadata={"nodepool_node_id": "1"}, resources=resources)


def test_same_name_same_cloud() -> None:
    """A cloud is found again by its name, and forgotten on demand."""
    cloud = FakeCloud.get("test-same")
    assert FakeCloud.get("test-same") is cloud
    FakeCloud.forget("test-same")
    assert FakeCloud.get("test-same") is not cloud
    FakeCloud.forget("test-same")


def test_life_of_an_instance() -> None:
    """Made, listed with its metadata, active, deleted, gone."""
    cloud = FakeCloud("c")
    made = create(cloud)
    assert cloud.wait_booted(made.id, 10).status == ACTIVE
    (listed,) = cloud.instances()
    assert listed.metadata == {"nodepool_node_id": "1"}
    assert listed.address.startswith("127.")
    cloud.delete(made.id)
    cloud.wait_gone(made.id, 10)
    assert cloud.instances() == []
    with pytest.raises(NoSuchInstance):
        cloud.delete(made.id)
    with pytest.raises(NoSuchInstance):
        cloud.wait_booted(made.id, 10)


def test_addresses_differ() -> None:
    """No two instances share an address."""
    cloud = FakeCloud("c")
    assert len({create(cloud).address for _ in range(600)}) == 600


def test_hang_and_release() -> None:
    """An instance that hangs is building until the knob is turned back; the caller that waits hears of it."""
    cloud = FakeCloud("c")
    cloud.set(hang=True)
    made = create(cloud)
    assert cloud.instances()[0].status == BUILDING
    with pytest.raises(TimeoutError):
        cloud.wait_booted(made.id, 0)
    seen: list[str] = []
    waiter = threading.Thread(target=lambda: seen.append(cloud.wait_booted(made.id, 60).status))
    waiter.start()
    cloud.set(hang=False)
    waiter.join()
    assert seen == [ACTIVE]


def test_cancelled_wait() -> None:
    """A waiting caller can be called off."""
    cloud = FakeCloud("c")
    cloud.set(hang=True)
    made = create(cloud)
    stop = threading.Event()
    errors: list[Exception] = []

    def wait() -> None:
        try:
            cloud.wait_booted(made.id, 60, stop.is_set)
        except Cancelled as error:
            errors.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    stop.set()
    cloud.wake()
    waiter.join()
    assert len(errors) == 1


def test_slow_delete() -> None:
    """A deletion takes its time; meanwhile the instance is shown and counts."""
    cloud = FakeCloud("c")
    cloud.set(delete_seconds=3600, limits={"instances": 1})
    made = create(cloud)
    cloud.delete(made.id)
    cloud.delete(made.id)
    assert cloud.instances()[0].status == DELETING
    with pytest.raises(TimeoutError):
        cloud.wait_gone(made.id, 0)
    with pytest.raises(OverQuota):
        create(cloud)


def test_failures_are_used_up() -> None:
    """The first N launches fail, then they work."""
    cloud = FakeCloud("c")
    cloud.set(fail_launches=2)
    states = [cloud.wait_booted(create(cloud).id, 10).status for _ in range(3)]
    assert states == [ERROR, ERROR, ACTIVE]


def test_quota_errors() -> None:
    """A refusal by knob makes nothing."""
    cloud = FakeCloud("c")
    cloud.set(quota_errors=1)
    with pytest.raises(OverQuota):
        create(cloud)
    assert cloud.instances() == []
    create(cloud)


def test_limits() -> None:
    """Each named limit holds; deleting frees."""
    cloud = FakeCloud("c")
    cloud.set(limits={"instances": 3, "cores": 4})
    first = create(cloud, cores=2, ram=1024)
    create(cloud, cores=2)
    with pytest.raises(OverQuota):
        create(cloud, cores=1)
    cloud.delete(first.id)
    create(cloud, cores=1)
    create(cloud)
    with pytest.raises(OverQuota):
        create(cloud)
    assert cloud.peak == 3


def test_lost_answer() -> None:
    """The instance exists although the caller got an error."""
    cloud = FakeCloud("c")
    cloud.set(lost_answers=1)
    with pytest.raises(CloudError):
        create(cloud)
    assert len(cloud.instances()) == 1


def test_down() -> None:
    """A cloud that is down fails every call, and forgets nothing."""
    cloud = FakeCloud("c")
    made = create(cloud)
    cloud.set(down=True)
    for call in (cloud.instances, lambda: create(cloud), lambda: cloud.delete(made.id)):
        with pytest.raises(CloudError):
            call()
    cloud.set(down=False)
    assert [instance.id for instance in cloud.instances()] == [made.id]


def test_knobs_are_checked() -> None:
    """A knob that there is not is an error; a copy of the knobs changes nothing."""
    cloud = FakeCloud("c")
    with pytest.raises(TypeError):
        cloud.set(nonsense=1)
    cloud.knobs.limits["instances"] = 0
    create(cloud)
