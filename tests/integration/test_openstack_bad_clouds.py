# SPDX-License-Identifier: Apache-2.0
"""A cloud that cannot be used, or talks nonsense: it is said why, and nobody else is affected (issue: bad input)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from nodepool.driver.framework import fact
from nodepool.driver.statemachine import inventory, machines
from nodepool.plan import retries
from nodepool.plan.retries import Backoff
from nodepool.runtime import providers
from simulators.openstack import OpenStackSimulator
from tests.support.openstack_place import Place
from tests.support.tables import rows
from tests.support.wait import wait_for


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "RETRY", Backoff(0.2, 0.5))
    monkeypatch.setattr(fact, "ERROR_SECONDS", 0.3)
    monkeypatch.setattr(machines, "SAFETY_SECONDS", 1.0)
    monkeypatch.setattr(machines, "RETRY", Backoff(0.1, 0.4))
    monkeypatch.setattr(inventory, "RETRY", Backoff(0.2, 0.5))
    monkeypatch.setattr(retries, "TRIP_SECONDS", 0.5)
    monkeypatch.setattr(retries, "PROBE", Backoff(0.3, 0.6))


def no_traceback(caplog: pytest.LogCaptureFixture) -> bool:
    return not [record.getMessage() for record in caplog.records if record.exc_info]


def change(place: Place, **settings: Any) -> None:
    """Change settings of the cloud in clouds.yaml; those with None go. ``auth`` is merged."""
    entry = dict(place.clouds["simulator"])
    auth = {**entry["auth"], **settings.pop("auth", {})}
    entry = {**entry, **settings, "auth": auth}
    for part in (entry, auth):
        for key in [key for key, value in part.items() if value is None]:
            del part[key]
    place.write_clouds(simulator=entry)


@rows(__file__, "clouds_yaml_at_the_start")
def test_clouds_yaml_at_the_start(
    place: Place, neighbour: OpenStackSimulator, caplog: pytest.LogCaptureFixture, content: Any, text: str
) -> None:
    """G-9, G-10: the provider is absent, its requests fail at once; mended, it comes without a restart."""
    good = place.clouds_file.read_text(encoding="utf-8")
    alone = isinstance(content, dict)
    if isinstance(content, dict):
        change(place, auth=content)
    elif content is None:
        place.clouds_file.unlink()
    else:
        place.clouds_file.write_text(content, encoding="utf-8")
    place.launch()
    if alone:
        place.fulfilled(place.znodes.submit(["other"]))
        place.failed(place.znodes.submit(["small"]))
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any(
        line.startswith("Provider cloud-a cannot be started, trying again in") and text in line for line in lines
    )
    assert no_traceback(caplog)
    assert "secret" not in caplog.text
    place.clouds_file.write_text(good, encoding="utf-8")
    wait_for("the provider serves", lambda: "cloud-a" in {pool["provider_name"] for pool in place.znodes.pools()})
    request = place.znodes.submit(["small"])
    place.fulfilled(request)
    place.give_back(request)
    wait_for("nothing is left", lambda: place.contents()["servers"] == 0)


@pytest.mark.parametrize("content", ["clouds: [", "clouds: {}", None], ids=["no YAML", "empty", "missing"])
def test_clouds_yaml_breaks_while_it_is_used(
    place: Place, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    """G-8: what it said before counts, and nothing is interrupted, whatever else is changed meanwhile."""
    place.launch()
    before = place.provider
    if content is None:
        place.clouds_file.unlink()
    else:
        place.clouds_file.write_text(content, encoding="utf-8")
    wait_for("it is told", lambda: "Provider cloud-a keeps its earlier settings: " in caplog.text)
    request = place.znodes.submit(["small"])
    place.fulfilled(request)
    assert place.provider is before
    place.section["launch-retries"] = 2
    place.rewrite()
    wait_for("the other change is there", lambda: place.provider is not before)
    place.give_back(request)
    request = place.znodes.submit(["small"])
    place.fulfilled(request)
    place.give_back(request)
    place.wait_empty()
    assert no_traceback(caplog)


@rows(__file__, "wrong_places")
def test_wrong_place(
    place: Place, neighbour: OpenStackSimulator, caplog: pytest.LogCaptureFixture, settings: Any, text: str
) -> None:
    """A wrong region, interface, address or password: requests wait or go to others; the remedy is in the log."""
    change(place, **settings)
    place.launch()
    request = place.znodes.submit(["small"])
    place.fulfilled(place.znodes.submit(["other"]))
    wait_for("the circuit breaker opens", lambda: place.paused() == {"cloud-a": True, "cloud-b": False})
    assert text in caplog.text
    place.write_clouds()
    place.fulfilled(request)
    place.give_back(request)
    wait_for("nothing is left", lambda: place.contents()["servers"] == 0)
    assert no_traceback(caplog)
    assert not [word for word in ("secret", "changed") if f"{word}'" in caplog.text]
