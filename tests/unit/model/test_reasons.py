# SPDX-License-Identifier: Apache-2.0
"""Reasons that a person and a program understand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nodepool.model import reasons
from nodepool.model.quota import QuotaInformation, Shortage, first_shortage
from nodepool.model.reasons import Reason, ReasonCode, ReasonText


def test_codes_are_names() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*", code.value) for code in ReasonCode)


def test_reference_has_each_code() -> None:
    """`doc/source/reference/reasons.rst` has one section for each code: its meaning, numbers, and what to do."""
    page = (Path(__file__).parents[3] / "doc" / "source" / "reference" / "reasons.rst").read_text(encoding="utf-8")
    sections = re.findall(
        r"^\.\. _reason-([a-z-]+):\n\n``([a-z.-]+)``\n~+\n\n(?:[^:\n][^\n]*\n)+\n:Numbers: \S[^\n]*\n:What to do: \S",
        page,
        re.MULTILINE,
    )
    assert sorted(code for _, code in sections) == sorted(code.value for code in ReasonCode)
    assert all(anchor == code.replace(".", "-") for anchor, code in sections)
    assert page.count("\n~~~") == len(sections)


def test_each_constant_has_a_text() -> None:
    found = [value for value in vars(reasons).values() if isinstance(value, Reason)]
    assert found
    assert all(reason.text and isinstance(reason.code, ReasonCode) for reason in found)


@pytest.mark.parametrize(
    ("resource", "needed", "code", "text"),
    [
        ("cores", 1, ReasonCode.ROOM_CORES, "quota: 20 of 20 cores of provider lab in use"),
        ("cores", 8, ReasonCode.ROOM_CORES, "quota: 20 of 20 cores of provider lab in use, 8 more needed"),
        ("instances", 1, ReasonCode.ROOM_INSTANCES, "quota: 20 of 20 instances of provider lab in use"),
        ("ram", 512, ReasonCode.ROOM_RAM, "quota: 20 of 20 MiB of ram of provider lab in use, 512 more needed"),
        (
            "volume-gb",
            1.5,
            ReasonCode.ROOM_RESOURCE,
            "quota: 20 of 20 volume-gb of provider lab in use, 1.5 more needed",
        ),
    ],
)
def test_quota(resource: str, needed: float, code: ReasonCode, text: str) -> None:
    reason = reasons.quota_used_up("provider lab", resource, limit=20, used=20.0, needed=needed)
    assert (reason.code, reason.text) == (code, text)
    assert json.loads(json.dumps(reason.numbers)) == {"limit": 20, "used": 20, "needed": needed}


def test_too_small() -> None:
    """A-13: the text begins as in released launchers."""
    reason = reasons.too_small("pool main", "ram", limit=4096, needed=8192)
    assert reason.text == "it would exceed quota: 8192 MiB of ram needed, the limit of pool main is 4096"
    assert (reason.code, reason.numbers) == (ReasonCode.QUOTA_TOO_SMALL, {"limit": 4096, "needed": 8192})


def test_reasons_with_a_cause() -> None:
    """They have the numbers of their cause, and its text."""
    cause = reasons.quota_used_up("pool main", "instances", limit=2, used=2, needed=1)
    paused = reasons.pool_paused("200-7", cause)
    assert paused.text == (
        "the pool is paused: another request waits for room (200-7: quota: 2 of 2 instances of pool main in use)"
    )
    second = reasons.tenant_order("poor", cause)
    assert all(reason.numbers == cause.numbers for reason in (paused, second))
    assert [reason.code.value for reason in (paused, second)] == [
        *("wait.pool-paused", "wait.tenant-order"),
    ]


def test_failed_launches() -> None:
    """Each cause once."""
    reason = reasons.launch_failed({"1": "no flavor", "2": "", "3": "no flavor", "4": "no network"})
    assert reason.text == "node 1, 2, 3, 4 failed to launch: no flavor; no network"
    assert (reason.code, reason.numbers) == (ReasonCode.LAUNCH_FAILED, {"nodes": 4})
    assert reasons.launch_failed({"1": ""}).text == "node 1 failed to launch"


def test_hidden_limit() -> None:
    reason = reasons.hidden_limit("small", 12, 12, "VcpuLimitExceeded: You have requested more")
    assert (reason.code, reason.numbers) == (ReasonCode.ROOM_HIDDEN, {"limit": 12, "used": 12, "needed": 1})
    assert reason.text.startswith(reasons.NO_ROOM.text)
    assert reason.text.endswith(", 12 are there now: VcpuLimitExceeded: You have requested more")


def test_missing_images() -> None:
    """J-3: with the cause of each label, as far as it is known."""
    assert reasons.images_missing(["big", "small"], {}).text == "images are not available: label(s) big, small"
    told = reasons.images_missing(["big", "small"], {"small": "no usable image", "other": "-"})
    assert told.text == "images are not available: label(s) big, small; small: no usable image"


def test_tenant() -> None:
    at_limit = reasons.tenant_limit("poor", "instances", limit=10, used=10, needed=1)
    assert at_limit.text == "tenant poor is at its limit of 10 instances"
    too_large = reasons.tenant_limit("poor", "cores", limit=10, used=8, needed=4)
    assert too_large.text == "tenant poor uses 8 of 10 cores, 4 more needed"
    assert {at_limit.code, too_large.code} == {ReasonCode.ROOM_TENANT}


@pytest.mark.parametrize(
    ("place", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"), (21, "21st")],
)
def test_order(place: int, text: str) -> None:
    reason = reasons.in_order(place, 30, None)
    assert reason.text == f"{text} of 30 requests that wait for their turn"
    assert reason.numbers == {"place": place, "total": 30}


def test_order_names_what_is_waited_for() -> None:
    text = reasons.in_order(3, 14, reasons.POOL_PAUSED).text
    assert text == "3rd of 14 requests in front of the limit: the pool is paused: another request waits for room"


def test_texts_that_carry_their_reason() -> None:
    """reference/driver 3: `getDeclinedReasons` is a list of texts."""
    text = ReasonText(reasons.POOL_DISABLED)
    assert text == "the pool is disabled: max-servers is 0 or less"
    assert reasons.reason_of(text) is reasons.POOL_DISABLED
    assert reasons.reason_of("no such flavor") == Reason(ReasonCode.DRIVER_DECLINED, "no such flavor")


def test_joined() -> None:
    two = reasons.joined([reasons.IMAGE_MISSING, reasons.POOL_DISABLED])
    assert (two.code, two.text) == (
        ReasonCode.IMAGE_MISSING,
        "images are not available; the pool is disabled: max-servers is 0 or less",
    )
    assert reasons.joined([reasons.IMAGE_MISSING]) is reasons.IMAGE_MISSING
    assert reasons.joined([]).code is ReasonCode.DRIVER_DECLINED


def test_first_shortage() -> None:
    limits = QuotaInformation(cores=10, instances=4)
    limits.default = float("inf")
    limits.quota["compute"]["ram"] = float("inf")
    used = QuotaInformation(cores=8, instances=4, ram=1000)
    assert first_shortage(limits, used, QuotaInformation(cores=2, ram=99)) is None
    assert first_shortage(limits, used, QuotaInformation(cores=3)) == Shortage("cores", 10, 8, 3)
    assert first_shortage(limits, used, QuotaInformation(instances=1)) == Shortage("instances", 4, 4, 1)
    assert first_shortage(limits, used, QuotaInformation(gpu=1)) is None
    limits.quota["compute"]["gpu"] = 0
    assert first_shortage(limits, used, QuotaInformation(gpu=1)) == Shortage("gpu", 0, 0, 1)
