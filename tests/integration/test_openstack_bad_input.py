# SPDX-License-Identifier: Apache-2.0
"""What is wrong is named with provider, label and remedy, and hurts nobody else (issue: bad input)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.openstack import create
from tests.support.openstack_place import Place
from tests.support.wait import wait_for


def test_instance_without_address(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input: it is a failed attempt, it is said why, and nothing is left."""
    monkeypatch.setattr(create, "NO_ADDRESS_SECONDS", 0.5)
    place.section["launch-retries"] = 1
    place.simulator.change(boots=[{"kind": "no-address"}])
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    place.wait_empty()
    assert "provider cloud-a, label small: server" in caplog.text
    assert "has no address; check the networks" in caplog.text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"flavor-name": "nope"}, "label small: the cloud has no flavor named 'nope'"),
        ({"networks": ["nope"]}, "label small: the cloud has no network 'nope'"),
        ({"key-name": "nope"}, "Invalid key_name provided"),
        ({"cloud-image": "gone"}, "label small: the cloud has no usable image 'gone'"),
    ],
)
def test_bad_label(place: Place, caplog: pytest.LogCaptureFixture, change: dict[str, Any], text: str) -> None:
    """Bad input: provider, label and remedy are named; other labels work; nothing is left."""
    place.section["launch-retries"] = 1
    place.section["cloud-images"].append({"name": "gone"})
    good = {**place.label, "name": "good"}
    place.label.update(change)
    if "flavor-name" in change:
        del place.label["min-ram"]
    place.pool["labels"].append(good)
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    request = place.znodes.submit(["good"])
    place.fulfilled(request)
    place.give_back(request)
    place.wait_empty()
    assert text in caplog.text
    assert "provider cloud-a" in caplog.text


def test_expired_password(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Bad input: the request waits while the cloud refuses the login, and is served when it does not any more."""
    place.simulator.change(password="changed")
    place.launch()
    request = place.znodes.submit(["small"])
    wait_for("it is said", lambda: "check the user name, the password (is it expired?)" in caplog.text)
    place.simulator.change(password="secret")
    place.fulfilled(request)
    place.give_back(request)
    place.wait_empty()
