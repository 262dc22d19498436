# SPDX-License-Identifier: Apache-2.0
"""Cluster roles that stand for the role in each namespace: when they are used (KU-3)."""

from __future__ import annotations

import pytest

from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.kubernetes.client import CLUSTER_ROLES
from nodepool.driver.kubernetes.cloud import AGAIN_SECONDS, SharedRoles
from nodepool.driver.kubernetes.objects import NAMESPACE_RULES, POD_RULES
from tests.support.manual_clock import ManualClock
from tests.unit.driver.kubernetes.stand_in import StandIn

NAME = "nodepool-zuul-restricted"
EXISTS = CloudRefused("exists", 409, "exists", "AlreadyExists")
FORBIDDEN = CloudRefused("no", 403, "403 Forbidden")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client() -> StandIn:
    return StandIn()


def roles(client: StandIn, clock: ManualClock, required: bool = False) -> SharedRoles:
    return SharedRoles(client, required=required, clock=clock)


def asked(client: StandIn) -> int:
    """How often one was to be made."""
    return [(method, path) for method, path, _ in client.calls].count(("POST", CLUSTER_ROLES))


def test_made_once_for_each_kind_of_node(client: StandIn, clock: ManualClock) -> None:
    shared = roles(client, clock)
    for _ in range(3):
        assert (shared.name_of(True), shared.name_of(False)) == (NAME, "nodepool-zuul")
    assert asked(client) == 2


def test_no_right_is_logged_once_and_tried_again(
    client: StandIn, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nodepool.driver.kubernetes.SharedRoles")
    client.answers["POST", CLUSTER_ROLES] = FORBIDDEN
    shared = roles(client, clock)
    for _ in range(2):
        assert shared.name_of(True) is None
        assert shared.name_of(True) is None
        clock.pass_seconds(AGAIN_SECONDS + 1)
    assert asked(client) == 2
    (told,) = caplog.messages
    assert "create clusterroles" in told
    del client.answers["POST", CLUSTER_ROLES]
    assert shared.name_of(True) == NAME
    assert len(caplog.messages) == 2


def test_no_right_is_an_error_where_they_are_required(client: StandIn, clock: ManualClock) -> None:
    client.answers["POST", CLUSTER_ROLES] = FORBIDDEN
    with pytest.raises(CloudRefused):
        roles(client, clock, required=True).name_of(True)


def test_another_refusal_is_an_error(client: StandIn, clock: ManualClock) -> None:
    """An API server that is not well says nothing about rights."""
    client.answers["POST", CLUSTER_ROLES] = CloudRefused("no", 422, "422 Invalid")
    with pytest.raises(CloudRefused):
        roles(client, clock).name_of(True)


@pytest.mark.parametrize(
    ("rules", "required", "used"),
    [
        (POD_RULES, False, True),
        # The same rights, written in another way.
        ([{**rule, "verbs": rule["verbs"][::-1]} for rule in POD_RULES[::-1]], False, True),
        (NAMESPACE_RULES, False, False),
        ([{**rule, "resourceNames": ["one"]} for rule in POD_RULES], False, False),
        ([], False, False),
        (None, False, False),
        (NAMESPACE_RULES, True, True),
    ],
    ids=["the same", "written differently", "more", "of one object", "none", "null", "required"],
)
def test_one_that_is_there(client: StandIn, clock: ManualClock, rules: object, required: bool, used: bool) -> None:
    client.answers["POST", CLUSTER_ROLES] = EXISTS
    client.answers["GET", f"{CLUSTER_ROLES}/{NAME}"] = {"metadata": {"name": NAME}, "rules": rules}
    assert roles(client, clock, required).name_of(True) == (NAME if used else None)


@pytest.mark.parametrize("error", [FORBIDDEN, CloudNotFound("no", 404, "404 NotFound")], ids=["no right", "gone"])
def test_one_that_cannot_be_read_is_used(client: StandIn, clock: ManualClock, error: Exception) -> None:
    client.answers["POST", CLUSTER_ROLES] = EXISTS
    client.answers["GET", f"{CLUSTER_ROLES}/{NAME}"] = error
    assert roles(client, clock).name_of(True) == NAME


def test_one_that_cannot_be_bound_is_not_used_for_a_while(client: StandIn, clock: ManualClock) -> None:
    shared = roles(client, clock)
    assert shared.name_of(True) == NAME
    shared.binding_refused(FORBIDDEN)
    assert shared.name_of(True) is None
    clock.pass_seconds(AGAIN_SECONDS + 1)
    assert shared.name_of(True) == NAME


def test_one_that_cannot_be_bound_is_used_where_it_is_required(client: StandIn, clock: ManualClock) -> None:
    shared = roles(client, clock, required=True)
    shared.binding_refused(FORBIDDEN)
    assert shared.name_of(True) == NAME


def test_forgotten(client: StandIn, clock: ManualClock) -> None:
    """Somebody deleted it: it is made again."""
    shared = roles(client, clock)
    shared.name_of(True)
    shared.forget()
    assert shared.name_of(True) == NAME
    assert asked(client) == 2
