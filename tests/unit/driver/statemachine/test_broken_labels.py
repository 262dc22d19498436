# SPDX-License-Identifier: Apache-2.0
"""Labels that can never work in a provider (rule Q-14)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine import StateMachine, cloud_quota
from nodepool.exceptions import RuntimeConfigurationException
from tests.support.wait import wait_for
from tests.unit.driver.statemachine.conftest import MakeSite


def test_label_that_can_never_work(make_site: MakeSite) -> None:
    """Q-14: found out while launching: no further attempt, an error label, requests for it are declined."""
    site = make_site({"launch-retries": 5})

    def refuse(machine: StateMachine) -> None:
        raise RuntimeConfigurationException("no such flavor: huge")

    site.adapter.hooks.append(refuse)
    site.fail("small")
    assert site.provider.errorLabels() == ["small"]
    site.adapter.hooks.clear()
    site.fail("small")
    site.serve("large")
    assert site.cloud.calls["create"] == 1


def test_need_that_cannot_be_determined(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Q-14: the quota of the label."""
    caplog.set_level("INFO")
    site = make_site()
    plain = site.adapter.getQuotaForLabel

    def need(label: Any) -> Any:
        if label.name == "small":
            raise RuntimeConfigurationException("no such flavor: huge")
        return plain(label)

    monkeypatch.setattr(site.adapter, "getQuotaForLabel", need)
    site.fail("small")
    site.fail("small")
    told = [line for line in caplog.messages if "Declining node request: " in line]
    cause = "node type(s) [small] not available; small: no such flavor: huge"
    assert [line.partition("Declining node request: ")[2] for line in told] == [f"{cause} (small)"] * 2
    (first,) = [record for record in caplog.records if "label small can never work" in record.getMessage()]
    assert first.getMessage().startswith("[node_request: "), "J-5: the id of the request that found it out"
    assert (vars(first)["label"], vars(first)["code"]) == ("small", "label.broken")
    assert site.provider.labelErrors()["small"].text == "no such flavor: huge"
    assert "exceed quota" not in caplog.text
    assert site.provider.errorLabels() == ["small"]
    site.serve("large")


@pytest.mark.parametrize("where", ["need", "launch"])
def test_broken_label_gets_another_chance(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Q-14: what was missing may be made later; nobody wants to restart a launcher for that."""
    monkeypatch.setattr(cloud_quota, "NEED_AGE_SECONDS", 0.2)
    site = make_site()
    plain = site.adapter.getQuotaForLabel
    broken = True

    def need(label: Any) -> Any:
        if broken and where == "need":
            raise RuntimeConfigurationException("no such flavor: huge")
        return plain(label)

    def refuse(machine: StateMachine) -> None:
        if broken and where == "launch":
            raise RuntimeConfigurationException("no such flavor: huge")

    monkeypatch.setattr(site.adapter, "getQuotaForLabel", need)
    site.adapter.hooks.append(refuse)
    site.fail("small")
    broken = False
    wait_for("it is noticed", lambda: site.provider.errorLabels() == [])
    site.serve("small")
