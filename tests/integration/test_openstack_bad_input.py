# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a label is said with provider, label and remedy, and hurts no other label (issue: bad input)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from nodepool.driver.openstack import cloud as cloud_module
from nodepool.driver.openstack import servers
from nodepool.driver.statemachine import cloud as statemachine
from tests.support.openstack_place import Place
from tests.support.tables import rows
from tests.support.wait import wait_for

MANY = "x" * 70_000


@rows(__file__, "bad_labels")
def test_bad_label(place: Place, caplog: pytest.LogCaptureFixture, change: dict[str, Any], text: str) -> None:
    """The request fails soon, the other label of the pool is served, nothing is left."""
    place.section["cloud-images"] += [{"name": "gone"}, {"name": "gone-id", "image-id": "0000"}]
    place.pool["labels"].append({**place.label, "name": "good"})
    place.label.update({key: MANY if value == "many" else value for key, value in change.items()})
    for key in [key for key, value in change.items() if value is None]:
        del place.label[key]
    check(place, caplog, text)


@rows(__file__, "bad_pools")
def test_bad_pool(place: Place, caplog: pytest.LogCaptureFixture, change: dict[str, Any], text: str) -> None:
    """The same of what a pool has for all of its labels; another pool of the provider serves."""
    good = {"name": "second", "networks": ["provider"], "labels": [{**place.label, "name": "good"}]}
    place.section["pools"].append(good)
    place.pool.update(change)
    check(place, caplog, text)


def check(place: Place, caplog: pytest.LogCaptureFixture, text: str) -> None:
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    request = place.znodes.submit(["good"])
    place.fulfilled(request)
    place.give_back(request)
    place.wait_empty()
    wanted = [part for part in text.split("{}") if part]
    errors = [record for record in caplog.records if record.levelno >= logging.WARNING]
    told = [line for line in (record.getMessage() for record in errors) if all(part in line for part in wanted)]
    assert told, [record.getMessage() for record in errors]
    assert all("rovider cloud-a, label small: " in line or "rovider cloud-a: label small " in line for line in told)
    assert not [record for record in errors if record.exc_info]
    assert "exceed quota" not in caplog.text, "that is another trouble"
    assert MANY[:100] not in caplog.text
    assert place.paused() == {"cloud-a": False}


def test_what_was_missing_is_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flavor and image come later: the label is served without a restart or a touched file."""
    monkeypatch.setattr(statemachine, "NEED_AGE_SECONDS", 0.3)
    monkeypatch.setattr(statemachine, "AGE_SECONDS", 0.3)
    monkeypatch.setattr(cloud_module, "REFUSAL_AGE_SECONDS", 0.1)
    place.section["cloud-images"].append({**place.section["cloud-images"][0], "name": "late", "image-name": "late"})
    place.label.update({"flavor-name": "late"})
    del place.label["min-ram"]
    place.pool["labels"].append({**place.label, "name": "by-image", "flavor-name": "small", "cloud-image": "late"})
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    place.failed(place.znodes.submit(["by-image"]))
    with place.simulator.cloud() as cloud:
        cloud.add_flavor("99", "late", 1, 1024, 10)
        cloud.images.add_active("late")
    # As if the five minutes were over for which an image that is missing is not looked for (O-7).
    place.adapter.cloud.facts.clear()
    wait_for("the flavor is noticed", lambda: serves(place, "small"))
    wait_for("the image is noticed", lambda: serves(place, "by-image"))
    place.wait_empty()


def serves(place: Place, label: str) -> bool:
    """Does a request for it work by now?"""
    request = place.znodes.submit([label])
    state = wait_for("it ends", lambda: place.ended(request))
    if state == "fulfilled":
        place.give_back(request)
    return state == "fulfilled"


@rows(__file__, "servers_that_do_not_come_up")
def test_server_that_does_not_come_up(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, kind: str, text: str
) -> None:
    """It is a failed attempt, the log has the cause, and nothing is left."""
    monkeypatch.setattr(servers, "NO_ADDRESS_SECONDS", 0.5)
    place.section.update({"launch-retries": 1, **({"launch-timeout": 1} if kind == "stuck" else {})})
    place.simulator.change(boots=[{"kind": kind}])
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    place.wait_empty()
    assert text in caplog.text
