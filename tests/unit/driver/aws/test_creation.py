# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.instances`, step by step."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from nodepool.driver.aws.facts import LaunchPlace
from nodepool.driver.aws.instances import TERMINATE_SECONDS, AwsCreation, ended
from nodepool.driver.aws.launches import token_of
from nodepool.driver.aws.types import AwsRecord
from nodepool.driver.framework.cloud_errors import CloudNoCapacity, CloudNoCapacityLater, CloudQuota, CloudRefused
from nodepool.driver.framework.orders import CallSpacing
from nodepool.driver.statemachine import CreationKey
from nodepool.exceptions import LaunchStatusException, QuotaException
from tests.support.manual_executor import ManualExecutor
from tests.unit.driver.aws.support import LOG, NODE, PROVIDER, Rig, error, instance, section, shown

PLACE = LaunchPlace("t3.medium", None, None, spot=False)
TOKEN = token_of([CreationKey(PROVIDER, NODE, 1)], PLACE)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def go_on(rig: Rig, creation: AwsCreation, seconds: float = 0) -> Any:
    rig.clock.now += seconds
    return creation.advance()


def test_launch(rig: Rig) -> None:
    """AW-2, CM-8: an instance that runs is up; its id is stored as soon as there is an answer, as an object."""
    creation = rig.creation()
    assert creation.advance() is None
    assert creation.advance() is None
    assert (creation.external_id, creation.record_id) == ({"instance": "i-1"}, "i-1")
    for state in ("pending", "stopped"):
        rig.show(instance(state=state))
        assert creation.advance() is None
    rig.show(instance())
    made = creation.advance()
    assert creation.complete
    assert (made.external_id, made.region) == ({"instance": "i-1"}, "eu-north-1")
    assert rig.region.count("run_instances") == 1


def test_token(rig: Rig) -> None:
    """AW-3: of provider, node and attempt; what one attempt sends again has the same one, and the same parameters."""
    rig.region.answers["run_instances"] = [error("InternalError", status=500), {"Instances": [instance()]}]
    creation = rig.creation()
    creation.advance()
    go_on(rig, creation)
    go_on(rig, creation, 5)
    go_on(rig, creation)
    sent = [arguments for name, arguments in rig.region.calls if name == "run_instances"]
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert sent[0]["ClientToken"] == TOKEN
    assert creation.external_id == {"instance": "i-1"}
    second = rig.creation()
    second.attempt = 2
    second.advance()
    assert rig.region.last("run_instances")["ClientToken"] == token_of([CreationKey(PROVIDER, NODE, 2)], PLACE) != TOKEN


def test_lost_answer_of_a_launch_that_is_given_up(rig: Rig) -> None:
    """CM-7: the instance that it made is ended as soon as a list shows it."""
    rig.region.answers["run_instances"] = error("InternalError", status=500)
    creation = rig.creation()
    creation.advance()
    go_on(rig, creation)
    rig.cloud.creations.given_up(creation._creation)  # type: ignore[arg-type]
    rig.cloud.inventory.on_news = rig.cloud.delete_strays
    rig.show(instance("i-7"))
    assert rig.region.last("terminate_instances") == {"InstanceIds": ["i-7"]}


def test_made_with_an_earlier_configuration(rig: Rig) -> None:
    """AW-3: the token is known with other parameters: its instance is the node's."""
    rig.region.answers["run_instances"] = error("IdempotentParameterMismatch")
    rig.region.answers["describe_instances"] = shown(instance("i-8", "terminated"), instance("i-9"))
    creation = rig.creation()
    creation.advance()
    creation.advance()
    assert creation.external_id == {"instance": "i-9"}
    assert rig.region.last("describe_instances")["Filters"] == [{"Name": "client-token", "Values": [TOKEN]}]


def test_other_parameters_and_no_instance(rig: Rig) -> None:
    """It is refused: the next attempt has another token."""
    rig.region.answers["run_instances"] = error("IdempotentParameterMismatch")
    creation = rig.creation()
    with pytest.raises(CloudRefused, match="IdempotentParameterMismatch"):
        creation.advance()


def test_ended_before_its_creation_was_told(rig: Rig) -> None:
    rig.region.answers["run_instances"] = error("IdempotentInstanceTerminated")
    creation = rig.creation()
    with pytest.raises(LaunchStatusException, match="was ended before"):
        creation.advance()


@pytest.mark.parametrize(
    ("code", "expected", "looked_up_again"),
    [
        ("VcpuLimitExceeded", CloudQuota, False),
        ("InsufficientInstanceCapacity", CloudNoCapacity, False),
        ("InvalidAMIID.NotFound", CloudRefused, True),
    ],
)
def test_refused(
    rig: Rig,
    code: str,
    expected: type[Exception],
    looked_up_again: bool,
) -> None:
    """AW-16; what may be gone is looked up again by the next attempt."""
    rig.region.answers["run_instances"] = error(code)
    for _ in range(2):
        creation = rig.creation()
        with pytest.raises(expected):
            creation.advance()
    assert rig.region.count("describe_images") == (2 if looked_up_again else 1)


def no_room_in(*subnets: str) -> Any:
    """Refuses instances in these."""

    def answer(arguments: dict[str, Any]) -> Any:
        (interface,) = arguments["NetworkInterfaces"]
        full = interface.get("SubnetId") in subnets
        return error("InsufficientInstanceCapacity", status=500) if full else {"Instances": [instance()]}

    return answer


def test_no_room_here(caplog: pytest.LogCaptureFixture) -> None:
    """The next subnet is tried, and no attempt is spent; the next node does not try the first one again."""
    rig = Rig(section(pool={"subnet-id": ["a", "b"]}))
    rig.region.answers["run_instances"] = no_room_in("a")
    with caplog.at_level(logging.INFO):
        creation = rig.creation()
        creation.advance()
    assert creation.external_id == {"instance": "i-1"}
    assert "No capacity for t3.medium in a, trying t3.medium in b: " in caplog.text
    tokens = [arguments["ClientToken"] for name, arguments in rig.region.calls if name == "run_instances"]
    assert len(set(tokens)) == 2, "a token goes with its parameters"
    rig.creation().advance()
    assert rig.region.count("run_instances") == 3


def test_no_room_anywhere() -> None:
    """A failed attempt; the next one asks once."""
    rig = Rig(section(pool={"subnet-id": ["a", "b"]}))
    rig.region.answers["run_instances"] = no_room_in("a", "b")
    for calls in (2, 3):
        creation = rig.creation()
        with pytest.raises(CloudNoCapacity):
            creation.advance()
        assert rig.region.count("run_instances") == calls


def test_no_room_that_shows_later(rig: Rig) -> None:
    """The place rests, too."""
    creation = rig.creation()
    creation.advance()
    rig.show(instance(state="terminated", StateReason={"Code": "Server.InsufficientInstanceCapacity", "Message": "m"}))
    with pytest.raises(CloudNoCapacityLater):
        creation.advance()
    assert rig.cloud.places._rest_until


def test_no_room_that_shows_later_and_another_place() -> None:
    """No attempt is spent: what AWS ended is gone for good, and another instance is made elsewhere."""
    rig = Rig(section(pool={"subnet-id": ["a", "b"]}))
    creation = rig.creation()
    creation.advance()
    reason = {"Code": "Server.InsufficientInstanceCapacity", "Message": "m"}
    rig.show(instance(state="terminated", StateReason=reason))
    rig.region.answers["run_instances"] = {"Instances": [instance("i-2", "pending")]}
    for _ in range(4):
        creation.advance()
    assert creation.external_id == {"instance": "i-2"}
    sent = [arguments for name, arguments in rig.region.calls if name == "run_instances"]
    assert [arguments["NetworkInterfaces"][0]["SubnetId"] for arguments in sent] == ["a", "b"]
    assert sent[0]["ClientToken"] != sent[1]["ClientToken"]


def test_upload(rig: Rig) -> None:
    """An uploaded image goes by its id."""
    rig.creation("ami-77").advance()
    assert rig.region.last("describe_images") == {"ImageIds": ["ami-77"]}


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_ends_while_it_is_launched(rig: Rig, state: str) -> None:
    """AW-2: error.status, in the words of AWS; also when lists show it as gone already."""
    creation = rig.creation()
    creation.advance()
    creation.advance()
    rig.show(instance(state=state, StateReason={"Code": "Client.InternalError", "Message": "bad key"}))
    with pytest.raises(LaunchStatusException, match=f"i-1 is {state}: Client.InternalError: bad key"):
        creation.advance()


def test_gone_without_a_word(rig: Rig) -> None:
    """Somebody else ended it, so long ago that lists do not show it."""
    creation = rig.creation()
    creation.advance()
    creation.advance()
    rig.cloud.inventory.set_gone("i-1")
    with pytest.raises(LaunchStatusException, match="deleted by somebody else"):
        creation.advance()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("Client.VolumeLimitExceeded", QuotaException),
        ("Server.InsufficientInstanceCapacity", CloudNoCapacityLater),
        ("Server.SpotInstanceTermination", CloudNoCapacityLater),
        ("Client.SpotInstanceTermination", CloudNoCapacityLater),
        ("Client.InternalError", LaunchStatusException),
        ("", LaunchStatusException),
    ],
)
def test_why_it_ended(code: str, expected: type[Exception]) -> None:
    """AW-16: quota and lack of room that show only later."""
    found = ended("here", AwsRecord.of(instance(state="terminated", StateReason={"Code": code, "Message": "m"})))
    assert isinstance(found, expected)
    assert (code or "AWS gives no reason") in str(found)


def test_deletion(rig: Rig) -> None:
    """AW-2: gone is terminated."""
    rig.show(instance())
    deletion = rig.adapter.getDeleteStateMachine({"instance": "i-1"}, LOG)
    deletion.clock = rig.clock
    deletion.advance()
    deletion.advance()
    assert rig.region.last("terminate_instances") == {"InstanceIds": ["i-1"]}
    rig.show(instance(state="shutting-down"))
    deletion.advance()
    assert deletion.state == "waiting"
    rig.show(instance(state="terminated"))
    deletion.advance()
    assert deletion.complete
    assert rig.region.count("terminate_instances") == 1


@pytest.mark.parametrize("stored", ["i-1", {"instance": "i-1"}])
def test_deletion_of_what_is_gone(rig: Rig, stored: Any) -> None:
    """CM-7, AW-7: EC2 says so, and says it again when it must know; its absence from a list does not count."""
    rig.region.answers["terminate_instances"] = error("InvalidInstanceID.NotFound")
    deletion = rig.adapter.getDeleteStateMachine(stored, LOG)
    deletion.clock = rig.clock
    deletion.advance()
    assert (deletion.complete, rig.region.count("terminate_instances")) == (False, 1)
    rig.clock.now += rig.cloud.lag_seconds
    deletion.advance()
    assert (deletion.complete, rig.region.count("terminate_instances")) == (True, 2)


def test_deletion_of_what_is_not_known_everywhere(rig: Rig) -> None:
    """AW-15: just after its creation EC2 may say that there is no such instance: it is ended all the same."""
    rig.region.answers["terminate_instances"] = [error("InvalidInstanceID.NotFound"), {}]
    deletion = rig.adapter.getDeleteStateMachine({"instance": "i-1"}, LOG)
    deletion.clock = rig.clock
    deletion.advance()
    rig.show(instance())
    rig.clock.now += rig.cloud.lag_seconds
    deletion.advance()
    assert (deletion.state, rig.region.count("terminate_instances")) == ("waiting", 2)
    rig.show(instance(state="terminated"))
    deletion.advance()
    assert deletion.complete


def test_deletion_of_nothing(rig: Rig) -> None:
    """X-4."""
    for stored in (None, {"other": "h-1"}, {"host": ""}):
        deletion = rig.adapter.getDeleteStateMachine(stored, LOG)
        deletion.advance()
        assert deletion.complete
    assert not rig.region.calls


def test_deletions_go_together(rig: Rig) -> None:
    """AW-15: what waits for a call goes with the next one, up to 100; between two calls others gather."""
    executor: Any = ManualExecutor(eager=False)
    rig.cloud._terminations._executor = executor
    pauses: list[float] = []
    rig.cloud._spacing = CallSpacing(TERMINATE_SECONDS, pauses.append, rig.clock)
    futures = [rig.cloud.begin_deletion(f"i-{number}") for number in range(120)]
    executor.run()
    assert [len(arguments["InstanceIds"]) for _, arguments in rig.region.calls] == [100, 20]
    assert all(future.done() for future in futures)
    assert pauses == [TERMINATE_SECONDS]
