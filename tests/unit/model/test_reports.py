# SPDX-License-Identifier: Apache-2.0
"""What daemons report of themselves, with reasons, quotas and events."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from doc.source.extensions import reason_codes
from nodepool.model import reasons, status
from nodepool.model.config_keys import did_you_mean, names_a_secret
from nodepool.model.event import MAX_TEXT, Event, clipped, clock, short
from nodepool.model.node import QuotaInformation, Shortage, first_shortage
from nodepool.model.reasons import Reason, ReasonCode, ReasonText
from nodepool.model.record import InvalidRecord, as_json, plain, read
from nodepool.plan.explained import SENTENCES
from tests.support.observed import like
from tests.support.tables import rows

REFERENCE = Path(__file__).parents[3] / "doc" / "source" / "reference"


# -- records of dataclasses


@dataclass(frozen=True)
class Inner:
    name: str = ""


@dataclass(frozen=True)
class Outer:
    text: str = ""
    count: int = 0
    seconds: float = 0.0
    flag: bool = False
    inner: Inner | None = None
    names: Sequence[str] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict)


def test_every_type() -> None:
    """Unknown keys are ignored, missing ones have their defaults; what orjson refuses the standard library writes."""
    record = Outer("x", 2, 1, True, Inner("i"), ("a",), {"k": Inner("j")})
    data: Any = plain(record)
    assert data == {**vars(record), "inner": {"name": "i"}, "names": ["a"], "by_name": {"k": {"name": "j"}}}
    assert read(Outer, {**data, "new": object()}) == record
    assert read(Outer, {"inner": None}) == Outer()
    assert plain((Inner("i"), 1.5, None)) == [{"name": "i"}, 1.5, None]
    assert [as_json(Inner(text)) for text in ("ü", "\udc80")] == ['{"name":"ü"}'.encode(), b'{"name":"\\udc80"}']
    for odd in (["\udc80", float("inf")], object()):
        with pytest.raises((ValueError, TypeError)):
            as_json(odd)


@rows(__file__, "other_types")
def test_another_type_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidRecord, match=message):
        read(Outer, data)


KINDS = {kind.__name__: kind for kind in (Event, status.LauncherStatus, status.PoolStatus)}


@rows(__file__, "reports")
def test_reports_are_written_and_read(kind: str, data: dict[str, Any]) -> None:
    """zookeeper 9: of another version, too."""
    record = KINDS[kind].of_record(data)
    for one in (record, KINDS[kind]()):
        assert KINDS[kind].of_record({**json.loads(json.dumps(one.to_dict())), "new": [1]}) == one
    assert like(record.to_dict(), data) == data
    first = next(name for name, value in record.to_dict().items() if isinstance(value, int | float))
    with pytest.raises(InvalidRecord, match=f"{first} is a list"):
        KINDS[kind].of_record({first: []})


def test_builders() -> None:
    """OV-8: what odd records hold is not taken; providers of two processes on a host are one builder's."""
    told = status.BuilderStatus.of_records(
        [
            {
                "builds": {
                    "deb/b1": {"step": "install", "since": 1, "estimate": 60},
                    "deb/b2": {"step": 7, "estimate": "x"},
                }
            },
            {"uploads": {"deb/b0/lab/1": {"percent": 12.5, "bytes_per_second": 7, "size": 100}}},
            *({"host": "a", "providers": [name]} for name in "xy"),
            {"host": "b"},
        ]
    )
    assert [told.build("deb", id) for id in ("b1", "b2")] == [status.BuildStatus("install", 60), status.BuildStatus()]
    assert told.upload("deb", "b0", "lab", "1") == status.UploadStatus(12.5, 7, 100)
    assert told.upload("deb", "b0", "x", "1") == status.UploadStatus()
    assert told.providers == {"a": {"x", "y"}}
    odds: list[dict[str, Any]] = [{}, {"builds": None, "uploads": []}, {"builds": {"a/b": 1}, "uploads": {"a": "b"}}]
    for odd in odds:
        assert status.BuilderStatus.of_records([odd]) == status.BuilderStatus()


# -- events and maintenance


def test_events() -> None:
    """The same of another subject is a repetition; what differs in anything else is another event."""
    first = Event(1, "c/main", "request 1", "failed", "x", "text", 2)
    second = Event(2, "c/main", "request 2", "failed", "x", "text")
    assert second.repeats(first)
    assert second.joined_to(first) == Event(2, "c/main", "request 2", "failed", "x", "text", 3)
    for change in ({"actor": "c/two"}, {"subject": "node 1"}, {"what": "declined"}, {"code": "y"}, {"text": "z"}):
        assert not Event(**{**vars(second), **change}).repeats(first)
    assert (first.kind, Event().kind) == ("request", "")
    longer = "x" * (MAX_TEXT + 1)
    assert [clipped(text) for text in ("a\n  b", longer[1:], longer)] == ["a b", longer[1:], longer[4:] + "..."]


@pytest.mark.parametrize(
    "record",
    [
        status.Maintenance(
            "pool", "cloud-1/main", status.Mode.PAUSE, "the network", "alice@desk", 1763809000, 1763816200
        ),
        status.Maintenance("host", "zuul@[fe80::1]:22", status.Mode.QUARANTINE),
        status.Maintenance(
            "host", "h1", status.Mode.QUARANTINE, "3 failed checks", "launcher l1", 1.0, 61.0, automatic=True
        ),
    ],
)
def test_maintenance(record: status.Maintenance) -> None:
    """MT-9, MT-10: written and read; over at its end; and what is refused."""
    znode = status.znode_name(record.name)
    assert "/" not in znode
    assert status.Maintenance.of_record(record.kind, znode, record.to_dict()) == record
    end = record.until or math.inf
    assert (record.is_over(end - 1), record.is_over(end)) == (False, record.until is not None)
    assert {mode for modes in status.MODES.values() for mode in modes} == set(status.Mode)
    for change in ({"mode": ["pause"]}, {"mode": "odd"}, {"until": "tomorrow"}, {"reason": 1}):
        with pytest.raises(InvalidRecord):
            status.Maintenance.of_record(record.kind, "x", {**record.to_dict(), **change})
    for kind in ("unknown", "label"):
        with pytest.raises(InvalidRecord):
            status.Maintenance.of_record(kind, "x", {"mode": "quarantine"})


def test_words() -> None:
    """Of maintenance; words that may be meant; keys that may hold a secret; and times."""
    pause = status.Maintenance("pool", "cloud-1/main", status.Mode.PAUSE, "the network", "alice@desk")
    assert pause.text == "pool cloud-1/main is paused by alice@desk: the network"
    assert status.Maintenance("label", "gpu", status.Mode.PAUSE).text == "label gpu is paused"
    assert [did_you_mean(word, ["labels", "x"]) for word in ("lables", "xyz", 7)] == [
        ", did you mean 'labels'?",
        "",
        "",
    ]
    secret = [("password",), ("env-vars", "X"), ("auth", "API-KEY"), ("my_token_id",), (0, "secret")]
    assert all(map(names_a_secret, secret))
    assert not any(map(names_a_secret, [(), ("max-servers",), ("key-name",), ("host-key", 0)]))
    times = {-3: "0 s", 59.9: "59 s", 60: "1 min", 3599: "59 min", 3600: "1 h", 12000: "3 h 20 min", 86400: "1 d"}
    assert {seconds: short(seconds) for seconds in times} == times
    assert short(86400 * 2 + 4 * 3600 + 59) == "2 d 4 h"
    clocks = {0: "00:00:00:00", 59.9: "00:00:00:59", 90061: "01:01:01:01", 8640000: "100:00:00:00", -5: "00:00:00:00"}
    assert {seconds: clock(seconds) for seconds in clocks} == clocks


# -- quotas (reference/driver 12)


def compute(info: QuotaInformation) -> dict[str, float]:
    found: dict[str, float] = info.quota["compute"]
    return found


def test_arithmetic_of_quotas() -> None:
    """Missing names have the default: 0 of a use, no bound of a limit."""
    assert compute(QuotaInformation(cores=2, volumes=None)) == {"cores": 2, "instances": 0, "ram": 0, "volumes": 0}
    limit = QuotaInformation(cores=10, default=math.inf)
    limit.subtract(QuotaInformation(cores=4, volumes=3))
    assert compute(limit) == {"cores": 6, "instances": math.inf, "ram": math.inf, "volumes": math.inf}
    limit.subtract(QuotaInformation(default=math.inf, cores=6))
    assert (limit.non_negative(), compute(limit)["ram"]) == (True, math.inf)
    need = QuotaInformation(cores=1)
    copy = need.copy()
    assert copy == need
    need.add(QuotaInformation(cores=2, volumes=3))
    need.subtract(QuotaInformation(ram=1))
    assert compute(need) == {"cores": 3, "instances": 0, "ram": -1, "volumes": 3}
    assert (need.non_negative(), copy == need, compute(copy)["cores"], copy == 1) == (False, False, 1, False)


def test_resources_of_a_record() -> None:
    """zookeeper 5.1: never emit non-finite numbers; what is no number is skipped."""
    limit = QuotaInformation(cores=2, default=math.inf).get_resources()
    assert json.dumps(limit, allow_nan=False) == '{"cores": 2}'
    odd = {"cores": 2, "ram": "8G", "instances": True, "volumes": None, "gpu": 1.5, "x": math.inf, "y": 10**400}
    assert compute(QuotaInformation.from_resources(odd)) == {"cores": 2, "ram": 0, "instances": 0, "gpu": 1.5}


@rows(__file__, "first_shortage")
def test_first_shortage(need: dict[str, float], expected: list[Any] | None) -> None:
    """What has no limit is never short."""
    limits = QuotaInformation(cores=10, instances=4, ram=math.inf, gpu=0)
    limits.default = math.inf
    used = QuotaInformation(cores=8, instances=4, ram=1000)
    assert first_shortage(limits, used, QuotaInformation(**need)) == (expected and Shortage(*expected))


# -- reasons


def test_reference_has_each_code() -> None:
    """Its meaning, numbers, and what to do: from the command where it has a sentence, else from the comment."""
    codes = list(reason_codes.codes())
    page = reason_codes.expand((REFERENCE / "reasons.rst").read_text(encoding="utf-8"))
    assert [one.code for one in codes] == [code.value for code in ReasonCode]
    for one in codes:
        assert one.group.endswith(".")
        assert one.meaning.endswith("."), one.code
        assert not one.advice or one.advice.endswith("."), one.code
        assert page.count(f"\n   * - .. _reason-{one.code.replace('.', '-')}:\n\n       ``{one.code}``\n     - ") == 1
    advice = {one.code: one.advice for one in codes}
    assert advice["status.missing"] == "Search the log of its launcher for the id of the request."
    assert advice["served.locking"] == ""
    assert reason_codes.findings()["host ... is down: ..."] == ["wait.ready-node"]
    source = inspect.getsource(ReasonCode)
    both = [code for code in SENTENCES if re.search(rf"# Do: .*\n(?: +#: .*\n)* +\w+ = \"{re.escape(code)}\"", source)]
    assert not both, "the command has the advice already"


CAUSE = reasons.quota_used_up("pool main", "instances", limit=2, used=2, needed=1)


@rows(__file__, "reasons")
def test_reasons(make: str, given: list[Any], numbers: dict[str, float], code: str, text: str) -> None:
    """A-13, E-4, J-3: of the limit, what is used, and what is needed; those with a cause have its numbers and text."""
    arguments = [CAUSE if value == "CAUSE" else value for value in given]
    found = getattr(reasons, make)(*arguments, **numbers)
    assert (found.code.value, found.text) == (code, text)
    assert numbers.items() <= json.loads(json.dumps(found.numbers)).items()
    assert "CAUSE" not in given or found.numbers in (CAUSE.numbers, {"place": given[0], "total": given[1]})


# -- documentation, and drivers


def test_documentation_has_each_key() -> None:
    """reference/zookeeper 9.1 and 9.2."""
    page = (REFERENCE / "zookeeper.rst").read_text(encoding="utf-8")
    pool, launcher = page[page.index("9.1 Pool") :].split("9.2 Launcher")
    parts = (
        status.LimitStatus,
        status.LabelStatus,
        status.WaitingStatus,
        status.RequestStatus,
        status.LaunchesStatus,
        status.FailedLaunch,
        status.HostStatus,
    )
    for text, kinds in (
        (pool, (status.PoolStatus, *parts)),
        (launcher, (status.LauncherStatus, status.ReloadStatus, status.AbsentProvider, status.CandidateStatus, Event)),
    ):
        named = set(re.findall(r"``(\w+)``", text))
        assert all(named >= {field.name for field in fields(kind)} for kind in kinds)


def test_texts_of_drivers() -> None:
    """J-3: texts of `getDeclinedReasons` may carry their reason (reference/driver 3)."""
    assert reasons.reason_of(ReasonText(reasons.POOL_DISABLED)) is reasons.POOL_DISABLED
    assert reasons.reason_of("no such flavor") == Reason(ReasonCode.DRIVER_DECLINED, "no such flavor")
    two = reasons.joined([reasons.IMAGE_MISSING, reasons.POOL_DISABLED])
    assert (two.code, two.text) == (
        reasons.IMAGE_MISSING.code,
        f"{reasons.IMAGE_MISSING.text}; {reasons.POOL_DISABLED.text}",
    )
    assert reasons.joined([reasons.IMAGE_MISSING]) is reasons.IMAGE_MISSING
    assert reasons.joined([]).code is ReasonCode.DRIVER_DECLINED
