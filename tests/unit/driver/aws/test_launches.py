# SPDX-License-Identifier: Apache-2.0
"""Launches and deletions, step by step: calls of RunInstances, fleets, dedicated hosts, places, tags set later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.clock import wall_time
from nodepool.driver.aws import launches
from nodepool.driver.aws.instances import places_of
from nodepool.driver.aws.launches import (
    AGAIN_SECONDS,
    GATHER_SECONDS,
    OTHERS_SECONDS,
    OWN_SECONDS,
    SPARED,
    TEMPLATE_PREFIX,
    BatchTags,
    InstanceOrder,
    LaunchBatches,
    token_of,
)
from nodepool.driver.aws.types import BATCH_KEY, AwsRecord, LaunchPlace
from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudRefused
from nodepool.driver.statemachine import CreationKey, instance
from nodepool.exceptions import NotFound
from nodepool.metrics.catalog import LEAKED
from tests.support.counted import Counted
from tests.support.manual_executor import ManualExecutor
from tests.unit.driver.aws import support as aws
from tests.unit.driver.aws.support import rows

PLACE = LaunchPlace("t3.medium", None, None, spot=False)
UNKNOWN = aws.error("InvalidInstanceID.NotFound")
FULL = {"Code": "Server.InsufficientInstanceCapacity", "Message": "m"}


# -- one instance --


@pytest.mark.parametrize(("code", "expected", "looks"), rows("refused_launches"))
def test_refused(code: str, expected: type[Exception], looks: int) -> None:
    """AW-16; what may not be there any more is looked up again by the next attempt."""
    rig = aws.Rig(run_instances=aws.error(code))
    for _ in range(2):
        with pytest.raises(expected):
            rig.creation().advance()
    assert rig.region.count("describe_images") == looks


@pytest.mark.parametrize(("refused", "code", "text", "calls"), rows("refused_terminations"))
def test_one_that_cannot_end(refused: list[str], code: str, text: str, calls: int) -> None:
    """AW-15: as EC2 refuses a whole call, the others are sent again, whether the error names the one or not."""

    def answer(arguments: dict[str, Any]) -> Any:
        bad = [found for found in arguments["InstanceIds"] if found in refused]
        return aws.error(code, text.format(", ".join(bad))) if bad else {}

    rig = aws.Rig(terminate_instances=answer)
    errors = rig.adapter.instances.terminate(lambda: ["i-1", "i-2", "i-3", "i-4"])
    assert sorted(errors) == refused
    assert all(isinstance(found, NotFound) is ("NotFound" in code) for found in errors.values())
    assert rig.region.count("terminate_instances") == calls
    ended = {found for _, ids in rig.region.changes() if not set(ids) & set(refused) for found in ids}
    assert ended == {"i-1", "i-2", "i-3", "i-4"} - set(refused)
    rig.region.answers["terminate_instances"] = aws.AWAY
    with pytest.raises(CloudAway):
        rig.adapter.instances.terminate(lambda: ["i-1", "i-2"])


@pytest.mark.parametrize(("answer", "deleted"), [({}, True), (UNKNOWN, True), (aws.AWAY, False)])
def test_instance_of_an_abandoned_launch(answer: Any, deleted: bool, caplog: pytest.LogCaptureFixture) -> None:
    """L-4: it is deleted and counted as leaked, also if it does not exist any more; an error is logged."""
    leaked = Counted(LEAKED)
    aws.Rig(terminate_instances=answer).cloud.delete_abandoned("i-1")
    assert ("could not be deleted" in caplog.text, leaked.new() != {}) == (not deleted, deleted)


# -- several instances with one call --


def node_id(number: int) -> str:
    return f"{number:010d}"


def tags_of(arguments: dict[str, Any]) -> dict[str, str]:
    return aws.tags_in(arguments["TagSpecifications"][0]["Tags"])


class Burst(aws.Rig):
    """Launches that begin at the same time, in a region that takes two calls a second.

    ``made`` has all instances, by id.

    :param room: instances that a call makes at most.
    :param instead: answers in place of those, one for each call; None = as usual.
    """

    def __init__(self, number: int, *instead: Any, room: int = 1000) -> None:
        super().__init__(None, ManualExecutor(eager=False), 2, run_instances=self.answer)
        self.room = room
        self.instead = list(instead)
        self.made: dict[str, dict[str, Any]] = {}
        self.launches = [self.creation(node_id(index)) for index in range(number)]

    def answer(self, arguments: dict[str, Any]) -> Any:
        instead = self.instead.pop(0) if self.instead else None
        return instead(arguments) if callable(instead) else instead or self.run(arguments)

    def run(self, arguments: dict[str, Any]) -> Any:
        """Make instances. The order says nothing."""
        number = min(arguments["MaxCount"], self.room)
        tags, first = arguments["TagSpecifications"][0]["Tags"], len(self.made)
        found = [
            aws.instance(f"i-{first + index}", "pending", AmiLaunchIndex=index, Tags=tags) for index in range(number)
        ]
        self.made |= {one["InstanceId"]: one for one in found}
        return {"Instances": found[::-1]}

    def step(self) -> None:
        for launch in self.launches:
            if launch.state in ("start", "submitting", "repeating", "searching"):
                launch.advance()
        while self.executor.waiting:
            self.executor.run()

    def go(self, times: int = 1) -> None:
        """A pass begins calls, the next one takes their answers; then 5 seconds pass."""
        for _ in range(times):
            self.step()
            self.step()
            self.clock.now += 5

    @property
    def sent(self) -> list[dict[str, Any]]:
        return self.region.sent("run_instances")

    @property
    def counts(self) -> list[int]:
        return [arguments["MaxCount"] for arguments in self.sent]

    @property
    def ids(self) -> list[str]:
        return [launch.external_id["instance"] for launch in self.launches]


def all_of(number: int) -> list[str]:
    return [f"i-{index}" for index in range(number)]


LOST = [None, aws.AWAY]


@pytest.mark.parametrize(
    ("number", "room", "instead", "counts"),
    [
        # One node a call while AWS takes calls at once; what waits goes together, up to 20.
        (45, 1000, [], [1, 20, 20, 4]),
        # What is sent again after a lost answer is the same call, once for all of its launches.
        (4, 1000, LOST, [1, 3, 3]),
        # A call that makes fewer: the others go on, each alone, and no attempt is spent.
        (6, 2, [], [1, 5, 1, 1, 1]),
        # A repeated call says for whom there is none, too.
        (4, 2, LOST, [1, 3, 3, 1]),
    ],
)
def test_answers(number: int, room: int, instead: list[Any], counts: list[int]) -> None:
    """AW-3, AW-15, CM-1: the token of a call is of provider, nodes and attempts; launch indexes stand for the nodes of
    the tag.
    """
    burst = Burst(number, *instead, room=room)
    burst.go()
    waiting = number - 1 if instead else 0
    assert len(list(burst.adapter.unansweredCreations())) == waiting, "they count against max-servers"
    burst.go()
    assert burst.counts == counts
    assert burst.ids == all_of(number)
    assert not waiting or burst.sent[1] == burst.sent[2]
    assert len({arguments["ClientToken"] for arguments in burst.sent}) == len(counts) - bool(instead)
    assert list(burst.adapter.unansweredCreations()) == []
    key = CreationKey(aws.PROVIDER, node_id(0), 1)
    assert burst.sent[0]["ClientToken"] == token_of([key], PLACE) != token_of([key._replace(attempt=2)], PLACE)
    alone, joined = map(tags_of, burst.sent[:2])
    assert alone == {**instance.for_node(node_id(0), "main", aws.PROVIDER), "Name": f"np{node_id(0)}"}
    assert joined[BATCH_KEY] == " ".join(map(node_id, range(1, counts[1] + 1)))
    burst.show(*burst.made.values())
    for index, found in enumerate(burst.ids if room > 2 else []):
        assert [record.id for record in burst.cloud.of_node(node_id(index))] == [found]


def test_made_by_an_earlier_launcher() -> None:
    """AW-3: AWS knows the token with other parameters: each instance is that of the node of its launch index."""

    def known(arguments: dict[str, Any]) -> Any:
        burst.show(aws.instance("i-9", "terminated"), *burst.run(arguments)["Instances"])
        return aws.error("IdempotentParameterMismatch")

    burst = Burst(3, None, known)
    burst.go()
    filters = burst.region.last("describe_instances")["Filters"]
    assert filters == [{"Name": "client-token", "Values": [burst.sent[1]["ClientToken"]]}]
    assert burst.ids == all_of(3)


# -- which orders go together --


class Calls:
    """Notes the calls of RunInstances; ``answer`` says what each one makes, for the names of its orders."""

    def __init__(self, answer: Callable[[str], Iterable[str]] = list, spare: float = 0.0, late: str = "") -> None:
        self.executor = ManualExecutor(eager=False)
        transport = SimpleNamespace(wait_turn=self.wait_turn, sleep=self.gather, call=self.call)
        client: Any = SimpleNamespace(transport=transport, head=str)
        self.batches = LaunchBatches(client, self.executor, lambda made: None)
        self.answer, self.spare = answer, spare
        #: Orders that come while a call waits for more.
        self.late = late
        self.turns = 0
        self.sent: list[str] = []
        self.gathered: list[float] = []

    def wait_turn(self, *_: str) -> Any:
        self.turns += 1
        return SimpleNamespace(spare=self.spare)

    def gather(self, seconds: float) -> None:
        self.gathered.append(seconds)
        late, self.late = self.late, ""
        self.add(late)

    def call(self, _service: str, _kind: str, _operation: str, arguments: dict[str, Any], *_: Any) -> Any:
        tags = tags_of(arguments)
        names = tags.get(BATCH_KEY, tags.get(instance.NODE_KEY, "")).replace(" ", "")
        self.sent.append(names)
        made = self.answer(names)
        return {"Instances": [aws.instance(name.upper(), AmiLaunchIndex=index) for index, name in enumerate(made)]}

    def add(self, names: str) -> list[InstanceOrder]:
        orders = [
            InstanceOrder(CreationKey("aws", name, 1), PLACE, {}, {instance.NODE_KEY: name}, lambda: None, lambda: None)
            for name in names
        ]
        for order in orders:
            self.batches.add(order)
        return orders

    def run(self, names: str) -> list[Any]:
        orders = self.add(names)
        while self.executor.waiting:
            self.executor.run()
        return [order.future.exception(0) or order.future.result(0) for order in orders]


@pytest.mark.parametrize(
    ("spare", "ordered", "late", "sent", "gathered"),
    [
        (0.0, "abcde", "", ["abc", "de"], [GATHER_SECONDS]),
        # Each goes alone while there is no need to wait.
        (1.0, "ab", "", ["a", "b"], []),
        # A call waits for more when calls are short: the fewer AWS still takes, the longer.
        (0.6, "a", "b", ["ab"], [0.4 * GATHER_SECONDS]),
        (0.0, "a", "b", ["ab"], [GATHER_SECONDS]),
        (0.0, "abc", "", ["abc"], []),
    ],
)
def test_joined_calls(
    spare: float, ordered: str, late: str, sent: list[str], gathered: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn is taken for what is there only; the next order begins anew."""
    monkeypatch.setattr(launches, "MOST", 3)
    calls = Calls(list, spare, late)
    assert calls.run(ordered) == list(ordered.upper())
    assert calls.sent == sent
    assert calls.gathered == [pytest.approx(seconds) for seconds in gathered]
    assert (calls.turns, calls.executor.waiting) == (len(sent), [])
    assert calls.run("z") == ["Z"]


@pytest.mark.parametrize(
    ("answer", "ordered", "sent", "outcomes"),
    [
        # All of the orders of a call hear of its error, and no others.
        (lambda names: "d"[names.index("d")], "abcd", ["abc", "d"], [ValueError] * 3 + ["D"]),
        # What was not carried out goes again, each alone, so that AWS says why; a single one is an error.
        (lambda names: names[0], "abc", ["abc", "b", "c"], ["A", "B", "C"]),
        (lambda names: "", "a", ["a"], [CloudAway]),
    ],
)
def test_answers_of_a_joined_call(
    answer: Any, ordered: str, sent: list[str], outcomes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launches, "MOST", 3)
    calls = Calls(answer)
    found = calls.run(ordered)
    assert calls.sent == sent
    assert [type(each) if isinstance(wanted, type) else each for each, wanted in zip(found, outcomes, strict=True)] == (
        outcomes
    )


# -- tags that are set later --

COMMON = {instance.PROVIDER_KEY: aws.PROVIDER, BATCH_KEY: "0000000007 0000000008"}
OWN = {instance.NODE_KEY: "0000000008", "Name": "np0000000008"}


def seen(state: str = "running", **more: str) -> AwsRecord:
    volume = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeId": "vol-8"}}
    tags = aws.tag_set({**COMMON, **more})
    return AwsRecord(aws.instance("i-8", state, Tags=tags, AmiLaunchIndex=1, BlockDeviceMappings=[volume]))


FOREIGN = seen(**{instance.PROVIDER_KEY: "other"})


@pytest.mark.parametrize(
    ("ours", "looks"),
    [
        # Seconds until a list, what it shows, and the calls that were made until then.
        (True, [(OWN_SECONDS, seen("pending"), 0), (1, seen(), 1), (1, seen(), 1), (1, seen(**OWN), 1)]),
        # No call for an instance that is used for seconds only.
        (True, [(OWN_SECONDS - 1, seen(), 0), (2, seen("shutting-down"), 0)]),
        # Of another launcher, which was killed, or is about to set them.
        (False, [(1, seen(), 0), (OTHERS_SECONDS - 1, seen(), 0), (1, seen(), 1)]),
        (False, [(OTHERS_SECONDS, FOREIGN, 0)] * 3),
        # A later list shows that they are still missing.
        (True, [(OWN_SECONDS, seen(), 1), (AGAIN_SECONDS - 1, seen(), 1), (1, seen(), 2)]),
    ],
)
@pytest.mark.parametrize("answer", [{}, aws.error("InternalError"), UNKNOWN])
def test_tags_set_later(ours: bool, looks: list[tuple[float, AwsRecord, int]], answer: Any) -> None:
    """CM-1: one call for an instance and its volumes, when it has run for a while; an error is not the end."""
    rig = aws.Rig(create_tags=answer)
    tags = BatchTags(aws.PROVIDER, rig.adapter.client, rig.executor)
    if ours:
        tags.made([seen()])
    for seconds, record, calls in looks:
        rig.clock.now += seconds
        tags.seen([record])
        assert rig.region.count("create_tags") == calls
    for given in rig.region.sent("create_tags"):
        assert given == {"Resources": ["i-8", "vol-8"], "Tags": aws.tag_set(OWN)}


# -- fleets and dedicated hosts --

FLEET = {"instance-type": None, "fleet": {"instance-types": ["t3.medium"], "allocation-strategy": "prioritized"}}
MAC = {"instance-type": "mac2.metal", "dedicated-host": True}
FLEET_MADE = {"Instances": [{"InstanceIds": ["i-1"]}]}


def rig_of(label: dict[str, Any], **answers: Any) -> aws.Rig:
    """Launches of the label work in zones ``a`` and ``b``, but for ``answers``."""
    usual = {
        "create_fleet": FLEET_MADE,
        "create_launch_template": {},
        "release_hosts": {"Successful": ["h-1"]},
        "allocate_hosts": [{"HostIds": ["h-1"]}, {"HostIds": ["h-2"]}],
        "describe_hosts": {"Hosts": [aws.host()]},
    }
    return aws.Rig(aws.section(label, pool={"availability-zone": ["a", "b"]}), **{**usual, **answers})


@pytest.mark.parametrize(("code", "text", "templates", "fleets"), rows("templates_of_fleets"))
def test_template_of_a_fleet(code: str, text: str, templates: int, fleets: int) -> None:
    """AW-8, AW-9: made once, before the fleets that use it."""
    rig = rig_of(FLEET)
    rig.region.answers["create_fleet" if "NotFoundException" in code else "create_launch_template"] = aws.error(code)
    for _ in range(2):
        creation = rig.creation()
        with pytest.raises(CloudRefused, match=text) if text else contextlib.nullcontext():
            creation.advance()
        assert creation.external_id == (None if text else {"instance": "i-1"})
    assert (rig.region.count("create_launch_template"), rig.region.count("create_fleet")) == (templates, fleets)


def test_templates_that_no_label_uses() -> None:
    """AW-9: they are removed; not those of others, and not young ones: another launcher may use these."""
    rig = rig_of(FLEET, delete_launch_template=[{}, aws.error("InvalidLaunchTemplateId.NotFound")])
    rig.creation().advance()
    used = rig.region.last("create_launch_template")["LaunchTemplateName"]
    now = datetime.fromtimestamp(wall_time(), UTC)
    old, names = now - SPARED - timedelta(minutes=1), [TEMPLATE_PREFIX + name for name in ("old", "new", "gone", "odd")]
    made = {used: old, names[0]: old, names[1]: now, "of another": old, names[2]: old, names[3]: None}
    rig.region.answers["describe_launch_templates"] = {
        "LaunchTemplates": [
            {"LaunchTemplateId": f"lt-{number}", "LaunchTemplateName": name, "CreateTime": created}
            for number, (name, created) in enumerate(made.items(), 1)
        ]
    }
    for _ in range(2):
        assert "launchtemplate" not in [resource.type for resource in rig.adapter.listResources()]
    assert [one["LaunchTemplateId"] for one in rig.region.sent("delete_launch_template")] == ["lt-2", "lt-5"]
    (look,) = rig.region.sent("describe_launch_templates")
    assert [found["Values"] for found in look["Filters"]] == [["True"], [aws.PROVIDER]]


@pytest.mark.parametrize(("answers", "expected", "calls"), rows("hosts_that_fail"))
def test_no_host(answers: dict[str, Any], expected: type[Exception], calls: int) -> None:
    """AW-5, AW-6, AW-16: the host, if there is one, is released with the node."""
    rig = rig_of(MAC, **answers)
    creation = rig.creation()
    with pytest.raises(expected):
        rig.advance(creation, 20, seconds=6)
    hosts = None if "allocate_hosts" in answers else {"host": f"h-{calls}"}
    assert (creation.external_id, rig.region.count("allocate_hosts")) == (hosts, calls)
    quiet = [rig.cloud.places.rests(place) for place in places_of(rig.label)]
    assert quiet == [expected is CloudNoCapacity] * 2


def test_host_of_a_launch_that_goes_on_without_room() -> None:
    """L-18, AW-5: the host that another launcher allocated is released before there is one at the next place."""
    rig = rig_of(MAC, run_instances=[aws.error("InsufficientInstanceCapacity"), {"Instances": [aws.instance()]}])
    creation = rig.creation()
    creation.adopt({"host": "h-9"})
    rig.advance(creation, 6, seconds=6)
    assert [one["HostIds"] for one in rig.region.sent("release_hosts")] == [["h-9"]]
    assert creation.external_id == {"instance": "i-1", "host": "h-1"}


def test_host_that_aws_keeps(caplog: pytest.LogCaptureFixture) -> None:
    """AW-6: the answer looks like a success. The node goes; the host is released when AWS lets it go."""
    code, text = "HostMinAllocationPeriodUnexpired", "hosts must be allocated for at least 24 hour(s)"
    failed = {"ResourceId": "h-1", "Error": {"Code": code, "Message": text}}
    rig = rig_of(MAC)
    rig.region.answers["release_hosts"] = {"Successful": [], "Unsuccessful": [failed]}
    with pytest.raises(CloudRefused, match=f"failed for h-1: {code}: hosts"):
        rig.cloud.client.release_host("h-1")
    deletion = rig.deletion({"host": "h-1"})
    deletion.advance()
    deletion.advance()
    assert deletion.complete
    assert text in caplog.text


# -- places --


def test_no_capacity_that_shows_later() -> None:
    """N-7, AW-16: AWS ends an instance that it accepted: another one is made in the next place, in the same attempt."""
    rig = aws.Rig(aws.section(pool={"subnet-id": ["a", "b"]}))
    creation = rig.creation()
    creation.advance()
    rig.show(aws.instance(state="terminated", StateReason=FULL))
    rig.region.answers["run_instances"] = {"Instances": [aws.instance("i-2", "pending")]}
    rig.advance(creation, 4)
    assert creation.external_id == {"instance": "i-2"}
    sent = rig.region.sent("run_instances")
    assert [arguments["NetworkInterfaces"][0]["SubnetId"] for arguments in sent] == ["a", "b"]
    assert sent[0]["ClientToken"] != sent[1]["ClientToken"]
