# SPDX-License-Identifier: Apache-2.0
"""A creation for which a cloud has no capacity, and that is begun anew, step by step."""

from __future__ import annotations

import pytest

from nodepool.driver.statemachine import Instance
from nodepool.driver.statemachine.lost_creations import CreationKey
from nodepool.exceptions import (
    CapacityException,
    LaunchError,
    NotFound,
)
from tests.unit.driver.statemachine.creation_rig import Launch, advance, cloud_that_creates
from tests.unit.driver.statemachine.instances import NODE, PROVIDER, Seen, StubInstances, seen


@pytest.fixture
def cloud() -> StubInstances:
    return cloud_that_creates()


class Choosy(Launch):
    """In a cloud that finds out late that a place has no capacity."""

    def __init__(self, cloud: StubInstances, places: int = 2) -> None:
        super().__init__(cloud)
        self.places = places

    def id_in_advance(self) -> str | None:
        return self.key().name("np42")

    def create(self, key: CreationKey) -> str:
        super().create(key)
        return key.name("np42")

    def seen(self, record: Seen) -> Instance | bool:
        if record.status == "crowded":
            raise CapacityException("no room here")
        return super().seen(record)

    def unlisted(self) -> None:
        if self.cloud.answers.get("refusal"):
            raise self.cloud.answers["refusal"]

    def refused(self, error: Exception) -> Exception:
        return error

    def begin_anew(self, error: LaunchError) -> float | None:
        if not isinstance(error, CapacityException) or self.places == 1:
            return None
        self.places -= 1
        return 3.0


class TestBegunAnew:
    """A creation that was accepted, or not, and for which the cloud has no capacity."""

    def test_what_was_made_is_deleted_before(self, cloud: StubInstances) -> None:
        """L-3, L-4: never two instances for one node; the next one has another key and another id."""
        launch = Choosy(cloud)
        advance(launch)
        assert launch.external_id == "np42"
        advance(launch)
        cloud.show(seen("np42", "crowded"))
        advance(launch)
        assert (launch.state, cloud.count("delete"), cloud.count("create")) == ("clearing", 1, 1)
        cloud.show()
        cloud.show()
        advance(launch, 2)
        assert (launch.external_id, cloud.count("create")) == ("np42", 1), "not before it is sure that it is gone"
        advance(launch)
        assert (launch.external_id, cloud.count("create")) == (None, 1), "nobody shall look for the one that is gone"
        advance(launch)
        assert (launch.external_id, launch.announced) == ("np42-1-1", True)
        advance(launch)
        cloud.show(seen("np42-1-1"))
        assert advance(launch).external_id == "np42-1-1"
        assert launch.keys == [CreationKey(PROVIDER, NODE, 1), CreationKey(PROVIDER, NODE, 1, 1)]

    def test_nothing_was_made(self, cloud: StubInstances) -> None:
        """The cloud says so before a list has the instance."""
        cloud.answers["delete"] = NotFound("there is none")
        launch = Choosy(cloud)
        advance(launch)
        advance(launch)
        cloud.answers["refusal"] = CapacityException("no room here")
        advance(launch)
        assert launch.state == "pausing"
        del cloud.answers["refusal"]
        advance(launch, 3)
        advance(launch)
        advance(launch)
        assert (launch.external_id, launch.waits_for) == ("np42-1-1", "no room here")

    def test_refused_at_once(self, cloud: StubInstances) -> None:
        """There is nothing to delete."""
        cloud.answers["create"] = [CapacityException("no room here"), "a"]
        launch = Choosy(cloud)
        advance(launch)
        advance(launch)
        assert (launch.state, cloud.count("delete")) == ("pausing", 0)
        advance(launch, 3)
        advance(launch)
        advance(launch)
        assert (launch.state, launch.record_id) == ("building", "np42-1-1")

    def test_no_place_is_left(self, cloud: StubInstances) -> None:
        """The attempt fails in the words of the cloud."""
        launch = Choosy(cloud, places=1)
        advance(launch)
        advance(launch)
        cloud.show(seen("np42", "crowded"))
        with pytest.raises(CapacityException, match="no room here"):
            advance(launch)
