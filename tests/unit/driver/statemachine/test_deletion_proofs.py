# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.deletion_machine`: what proves that an instance is gone (X-4, CM-7)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.exceptions import LaunchError, NotFound
from tests.support.quiet_inventory import QuietInventory
from tests.unit.driver.statemachine.deletion_rig import AWAY, deletion_of, show_others
from tests.unit.driver.statemachine.instances import PROVIDER, StubInstances, seen


@pytest.fixture
def cloud() -> StubInstances:
    return StubInstances()


def test_proof_ends_the_wait_for_late_lists(cloud: StubInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    """CM-7: lists are late, but the cloud says of an instance that they have shown whether it is gone."""
    monkeypatch.setattr(StubInstances, "lag_seconds", 10.0)
    monkeypatch.setattr(StubInstances, "absence_is_proved", True)
    cloud.show(seen("a"))
    deletion = deletion_of(cloud)
    deletion.advance()
    deletion.advance()
    assert cloud.count("get") == 0, "there was no list since"
    cloud.show()
    deletion.advance()
    deletion.advance()
    assert (deletion.complete, cloud.count("delete"), cloud.count("get")) == (True, 1, 1)


def test_absence_without_proof(cloud: StubInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    """CM-7: an instance that no list has shown may not be listed yet: nobody asks for it with each list."""
    monkeypatch.setattr(StubInstances, "lag_seconds", 10.0)
    monkeypatch.setattr(StubInstances, "absence_is_proved", True)
    cloud.inventory = QuietInventory(PROVIDER, cloud.list_instances, lag_seconds=10.0, clock=cloud.clock)
    cloud.show()
    deletion = deletion_of(cloud)
    deletion.advance()
    for _ in range(10):
        cloud.show()
        deletion.advance()
    assert cloud.count("get") == 0
    cloud.show()
    deletion.advance()
    deletion.advance()
    assert (deletion.complete, cloud.count("get")) == (True, 1)


def test_proof_that_cannot_be_had_yet(cloud: StubInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next list gives reason to ask again."""
    monkeypatch.setattr(StubInstances, "absence_is_proved", True)
    answers: list[Any] = [None, NotFound("a")]
    cloud.answers["get"] = answers
    cloud.show(seen("a"))
    deletion = deletion_of(cloud)
    deletion.advance()
    cloud.show()
    deletion.advance()
    deletion.advance()
    assert (deletion.state, cloud.count("get"), cloud.count("delete")) == ("waiting", 1, 1)
    cloud.show()
    deletion.advance()
    deletion.advance()
    assert (deletion.complete, cloud.count("get")) == (True, 2)


def test_hidden(cloud: StubInstances) -> None:
    """An instance that lists do not show is asked for itself: only its own answer proves that it is gone."""
    cloud.answers["get"] = seen("a")
    cloud.show(seen("other"))
    deletion = deletion_of(cloud)
    show_others(cloud, deletion, 6)
    assert not deletion.complete
    assert cloud.count("delete") >= 2
    cloud.answers["get"] = seen("a", "gone")
    show_others(cloud, deletion, 2)
    assert deletion.complete


def test_hidden_while_the_cloud_is_away(cloud: StubInstances) -> None:
    """No answer proves nothing."""
    cloud.answers["get"] = [AWAY, LaunchError("not now"), NotFound("a")]
    deletion = deletion_of(cloud)
    show_others(cloud, deletion, 4)
    assert not deletion.complete
    show_others(cloud, deletion, 4)
    assert deletion.complete


@pytest.mark.parametrize("lists", [(True, True), (True, False)])
def test_absent(cloud: StubInstances, lists: tuple[bool, ...]) -> None:
    """After a complete list the next one of changes usually says that it is gone; or another complete one must do."""
    cloud.show(seen("a"))
    deletion = deletion_of(cloud)
    deletion.advance()
    for complete in lists:
        assert cloud.count("get") == 0
        cloud.show(seen("other"), complete=complete)
        deletion.advance()
    deletion.advance()
    assert deletion.complete
    assert (cloud.count("delete"), cloud.count("get")) == (1, 1)


def test_cloud_that_cannot_be_asked() -> None:
    """Lists are all there is: what they do not show is gone."""
    cloud = StubInstances(lists_changes=False)
    cloud.answers["get"] = NotImplementedError()
    deletion = deletion_of(cloud)
    deletion.advance()
    assert not deletion.complete
    cloud.show()
    deletion.advance()
    deletion.advance()
    assert deletion.complete
