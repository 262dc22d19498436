# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.aws.launches`, and of launches that use it."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.aws import transport as t
from nodepool.driver.aws.instances import AwsCreation
from nodepool.driver.aws.types import BATCH_KEY
from nodepool.driver.framework.cloud_errors import CloudNoCapacity, CloudQuota
from nodepool.driver.framework.rate import BucketSize, RateClasses
from nodepool.driver.statemachine.instance import NODE_KEY, for_node
from nodepool.exceptions import LaunchStatusException
from tests.support.manual_executor import ManualExecutor
from tests.unit.driver.aws.support import LOG, PROVIDER, Rig, error, instance, section


def node_id(number: int) -> str:
    return f"{number:010d}"


def tags_of(arguments: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in arguments["TagSpecifications"][0]["Tags"]}


class Burst:
    """Launches that begin at the same time, in a region that takes one call at once and then two a second.

    ``room`` says how many instances a call makes at most; ``made`` has the tags of all, by id.
    """

    def __init__(self, number: int, data: dict[str, Any] | None = None) -> None:
        self.rig = Rig(data)
        self.executor = ManualExecutor(eager=False)
        cloud = self.rig.cloud
        cloud.creators = cloud.launches._executor = cloud.launches._orders._executor = self.executor
        transport = self.rig.adapter.client.transport
        sizes = {t.RUN: BucketSize(1, 2)}
        transport._classes = RateClasses(sizes, BucketSize(1, 0), self.rig.clock, self._sleep)
        self.room = 1000
        self.made: dict[str, dict[str, Any]] = {}
        self.rig.region.answers["run_instances"] = self.run
        self.launches = [self.launch(index) for index in range(number)]

    def _sleep(self, seconds: float) -> None:
        self.rig.clock.now += seconds

    def launch(self, number: int) -> AwsCreation:
        rig = self.rig
        tags = for_node(node_id(number), "main", PROVIDER)
        machine = rig.adapter.getCreateStateMachine(f"np{node_id(number)}", rig.label, None, tags, None, None, LOG)
        machine.clock = rig.clock
        machine.since = machine.advanced_at = rig.clock()
        return machine

    def run(self, arguments: dict[str, Any]) -> Any:
        number = min(arguments["MaxCount"], self.room)
        if not number:
            return error("InsufficientInstanceCapacity", status=500)
        assert arguments["MinCount"] == 1
        found = []
        for index in range(number):
            found.append(
                instance(
                    f"i-{len(self.made)}",
                    "pending",
                    AmiLaunchIndex=index,
                    Tags=arguments["TagSpecifications"][0]["Tags"],
                )
            )
            self.made[found[-1]["InstanceId"]] = found[-1]
        # The order says nothing.
        return {"Instances": found[::-1]}

    def advance(self) -> None:
        for launch in self.launches:
            if launch.state in ("start", "submitting", "repeating", "searching"):
                launch.advance()
        while self.executor.waiting:
            self.executor.run()

    def go(self) -> None:
        self.advance()
        self.advance()

    @property
    def sent(self) -> list[dict[str, Any]]:
        return [arguments for name, arguments in self.rig.region.calls if name == "run_instances"]

    @property
    def counts(self) -> list[int]:
        return [arguments["MaxCount"] for arguments in self.sent]


def test_burst() -> None:
    """One node a call while AWS takes calls at once; what waits goes together, up to 20."""
    burst = Burst(45)
    burst.go()
    assert burst.counts == [1, 20, 20, 4]
    assert [launch.external_id for launch in burst.launches] == [{"instance": f"i-{number}"} for number in range(45)]
    assert burst.rig.clock.now - 1000 == pytest.approx(1.5)


def test_whose_an_instance_is() -> None:
    """Before anything else is said of it: its launch index stands for a node of the tag."""
    burst = Burst(4)
    burst.go()
    alone, joined = burst.sent
    assert tags_of(alone) == {**for_node(node_id(0), "main", PROVIDER), "Name": f"np{node_id(0)}"}
    assert tags_of(joined) == {
        "nodepool_pool_name": "main",
        "nodepool_provider_name": PROVIDER,
        BATCH_KEY: " ".join(map(node_id, (1, 2, 3))),
    }
    burst.rig.show(*burst.made.values())
    for number in range(4):
        (found,) = burst.rig.cloud.inventory.of_node(node_id(number))
        assert {"instance": found.id} == burst.launches[number].external_id


@pytest.mark.parametrize("differs", [{"dynamic-tags": {"of": "{request.id}"}}, {}])
def test_only_equal_launches(differs: dict[str, Any]) -> None:
    """Tags that say something of the request are never set later: they go only with their like."""
    burst = Burst(3, section(differs))
    for number, launch in enumerate(burst.launches):
        launch._tags = {**launch._tags, **({"of": str(number)} if differs else {})}
    burst.go()
    assert burst.counts == ([1, 1, 1] if differs else [1, 2])


def test_token() -> None:
    """What is sent again after a lost answer is the same call, once for all of its launches."""
    burst = Burst(4)
    answers = iter([None, error("InternalError", status=500)])

    def run(arguments: dict[str, Any]) -> Any:
        return next(answers, None) or burst.run(arguments)

    burst.rig.region.answers["run_instances"] = run
    burst.go()
    assert burst.counts == [1, 3]
    assert len(list(burst.rig.adapter.unansweredCreations())) == 3, "they count against max-servers"
    burst.rig.clock.now += 5
    burst.go()
    assert burst.counts == [1, 3, 3]
    assert burst.sent[1] == burst.sent[2]
    assert [launch.external_id["instance"] for launch in burst.launches] == ["i-0", "i-1", "i-2", "i-3"]
    assert list(burst.rig.adapter.unansweredCreations()) == []


def test_answer_that_never_comes() -> None:
    """The instances are found in lists, by the tag of the call."""
    burst = Burst(3)

    def run(arguments: dict[str, Any]) -> Any:
        if not burst.made or arguments["MaxCount"] > 1:
            made = burst.run(arguments) if len(burst.made) < 3 else None
            return made if arguments["MaxCount"] == 1 else error("InternalError", status=500)
        return None

    burst.rig.region.answers["run_instances"] = run
    for _ in range(4):
        burst.go()
        burst.rig.clock.now += 5
    assert {launch.state for launch in burst.launches[1:]} == {"searching"}
    burst.rig.show(*burst.made.values())
    burst.advance()
    assert [launch.external_id for launch in burst.launches[1:]] == [{"instance": "i-1"}, {"instance": "i-2"}]


def test_part() -> None:
    """A call that makes fewer: the others go on, each alone, and no attempt is spent."""
    burst = Burst(6)
    burst.room = 2
    burst.go()
    assert burst.counts == [1, 5, 1, 1, 1]
    assert [launch.external_id["instance"] for launch in burst.launches] == [f"i-{number}" for number in range(6)]
    assert len({arguments["ClientToken"] for arguments in burst.sent}) == 5


def test_part_of_a_repeated_call() -> None:
    """It tells for whom there is none, too."""
    burst = Burst(4)
    burst.room = 2
    answers = iter([None, error("InternalError", status=500)])
    burst.rig.region.answers["run_instances"] = lambda arguments: next(answers, None) or burst.run(arguments)
    burst.go()
    burst.rig.clock.now += 5
    burst.go()
    assert burst.counts == [1, 3, 3, 1]
    assert [launch.external_id["instance"] for launch in burst.launches] == ["i-0", "i-1", "i-2", "i-3"]


def test_no_room_for_the_rest() -> None:
    """The first one that hears of it spares the others the call: they go together to the next place."""
    burst = Burst(6, section(pool={"subnet-id": ["a", "b"]}))
    room = {"a": 3, "b": 1000}

    def run(arguments: dict[str, Any]) -> Any:
        subnet = arguments["NetworkInterfaces"][0]["SubnetId"]
        burst.room = room[subnet]
        before = len(burst.made)
        answer = burst.run(arguments)
        room[subnet] -= len(burst.made) - before
        return answer

    burst.rig.region.answers["run_instances"] = run
    burst.go()
    subnets = [arguments["NetworkInterfaces"][0]["SubnetId"] for arguments in burst.sent]
    assert list(zip(subnets, burst.counts, strict=True)) == [("a", 1), ("a", 5), ("a", 1), ("b", 3)]
    assert len(burst.made) == 6


def test_same_launch_index(caplog: pytest.LogCaptureFixture) -> None:
    """Documents do not say that it never happens: tags say whose the instances are, before anybody uses them."""
    burst = Burst(4)
    burst.rig.region.answers["create_tags"] = {}

    def run(arguments: dict[str, Any]) -> Any:
        answer = burst.run(arguments)
        return {"Instances": [{**found, "AmiLaunchIndex": 0} for found in answer["Instances"]]}

    burst.rig.region.answers["run_instances"] = run
    burst.go()
    assert burst.counts == [1, 3]
    assert [launch.external_id["instance"] for launch in burst.launches] == ["i-0", "i-1", "i-2", "i-3"]
    tagged = [arguments for name, arguments in burst.rig.region.calls if name == "create_tags"]
    assert [arguments["Resources"] for arguments in tagged] == [["i-1"], ["i-2"], ["i-3"]]
    assert {"Key": NODE_KEY, "Value": node_id(2)} in tagged[1]["Tags"]
    assert "the same launch index" in caplog.text


def test_no_room_for_others_after_a_lost_answer() -> None:
    """What may have been made here is asked for here, also if the place rests: nowhere else a second one is made."""
    burst = Burst(3, section(pool={"subnet-id": ["a", "b"]}))
    answers = iter([None, error("InternalError", status=500)])
    burst.rig.region.answers["run_instances"] = lambda arguments: next(answers, None) or burst.run(arguments)
    burst.go()
    place = burst.launches[1].places()[0]
    burst.rig.cloud.places.no_room(place)
    burst.rig.clock.now += 5
    burst.go()
    assert burst.sent[1] == burst.sent[2]
    assert len(burst.sent) == 3
    assert [launch.external_id["instance"] for launch in burst.launches] == ["i-0", "i-1", "i-2"]


def test_no_room_for_any() -> None:
    """With one place it is an error of all, as it is of one."""
    burst = Burst(3)
    burst.room = 0
    burst.advance()
    for launch in burst.launches:
        with pytest.raises(CloudNoCapacity):
            launch.advance()


def test_limit() -> None:
    """A limit that is used up makes them all wait: it says what it is."""
    burst = Burst(3)
    burst.rig.region.answers["run_instances"] = error("VcpuLimitExceeded")
    burst.advance()
    for launch in burst.launches:
        with pytest.raises(CloudQuota):
            launch.advance()
    assert list(burst.rig.adapter.unansweredCreations()) == []


def test_cancelled_before_its_turn() -> None:
    """Nothing is made for it; the others go without it."""
    burst = Burst(4)
    burst.launches[2].wanted = lambda: False
    burst.advance()
    with pytest.raises(LaunchStatusException, match="not wanted any more"):
        burst.launches[2].advance()
    assert burst.counts == [1, 2]
    assert node_id(2) not in tags_of(burst.sent[1])[BATCH_KEY]


def test_cancelled_after_the_call() -> None:
    """The call that is sent again is the same; what it makes for nobody is known by the tag, and deleted."""
    burst = Burst(3)
    answers = iter([None, error("InternalError", status=500)])
    burst.rig.region.answers["run_instances"] = lambda arguments: next(answers, None) or burst.run(arguments)
    burst.go()
    gone = burst.launches.pop(1)
    gone.wanted = lambda: False
    assert gone._creation is not None
    burst.rig.cloud.creations.given_up(gone._creation)
    burst.rig.clock.now += 5
    burst.go()
    assert burst.sent[1] == burst.sent[2]
    burst.rig.cloud.inventory.on_news = burst.rig.cloud.delete_strays
    burst.rig.show(*burst.made.values())
    assert burst.rig.region.last("terminate_instances") == {"InstanceIds": ["i-1"]}


def test_nobody_wants_it_any_more() -> None:
    """A call that AWS puts off is not made again for nobody."""
    burst = Burst(3)

    def put_off(arguments: dict[str, Any]) -> Any:
        if arguments["MaxCount"] == 1:
            return burst.run(arguments)
        for launch in burst.launches:
            launch.wanted = lambda: False
        return error("RequestLimitExceeded")

    burst.rig.region.answers["run_instances"] = put_off
    burst.advance()
    assert burst.counts == [1, 2]
    for launch in burst.launches[1:]:
        with pytest.raises(LaunchStatusException, match="not wanted any more"):
            launch.advance()


def test_made_by_an_earlier_launcher() -> None:
    """AWS knows the token with other parameters: each instance is that of the node of its launch index."""
    burst = Burst(3)

    def run(arguments: dict[str, Any]) -> Any:
        if arguments["MaxCount"] == 1:
            return burst.run(arguments)
        made = burst.run(arguments)["Instances"]
        burst.rig.show(*made)
        return error("IdempotentParameterMismatch")

    burst.rig.region.answers["run_instances"] = run
    burst.go()
    filters = burst.rig.region.last("describe_instances")["Filters"]
    assert filters == [{"Name": "client-token", "Values": [burst.sent[1]["ClientToken"]]}]
    assert [launch.external_id["instance"] for launch in burst.launches[1:]] == ["i-1", "i-2"]


def test_keys_of_long_nodes() -> None:
    """What does not fit in a tag goes with another call."""
    burst = Burst(0)
    long = "9" * 120
    for number in range(4):
        tags = for_node(f"{long}{number}", "main", PROVIDER)
        made = burst.rig.adapter.getCreateStateMachine("np", burst.rig.label, None, tags, None, None, LOG)
        made.clock = burst.rig.clock
        made.since = made.advanced_at = burst.rig.clock()
        burst.launches.append(made)
    burst.go()
    assert burst.counts == [1, 2, 1]
    assert all(len(tags_of(arguments).get(BATCH_KEY, "")) <= 256 for arguments in burst.sent)
