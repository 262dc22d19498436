# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.plan.static` (S-4, S-16)."""

from __future__ import annotations

import pytest

from nodepool.plan.static import (
    FLAP_SECONDS,
    HostHealth,
    after_failure,
    after_success,
    is_our_network,
    is_quarantined_by,
    quarantine_pause,
)

AFTER = 3


def fail(health: HostHealth, now: float, times: int = 1) -> HostHealth:
    for number in range(times):
        health = after_failure(health, "no answer", now + number, AFTER)
    return health


def test_an_outage_has_one_beginning() -> None:
    """S-4: `since` is the first failure, whatever the later ones say."""
    health = after_failure(fail(HostHealth(), 100.0), "name unknown", 160.0, AFTER)
    assert (health.up, health.since, health.failures, health.text) == (False, 100.0, 2, "name unknown")
    health = after_success(health, 200.0)
    assert (health.up, health.since, health.failures, health.text) == (True, 200.0, 0, "")
    assert after_success(health, 300.0) is health


def test_a_row_of_failures_quarantines() -> None:
    """S-16: not before the number is reached, and never when it is 0."""
    health = fail(HostHealth(), 0.0, AFTER - 1)
    assert not is_quarantined_by(health, AFTER)
    health = fail(health, 10.0)
    assert is_quarantined_by(health, AFTER)
    assert not is_quarantined_by(health, 0)


@pytest.mark.parametrize(("up_for", "row"), [(FLAP_SECONDS - 1, AFTER), (FLAP_SECONDS, 1)])
def test_a_short_return_does_not_end_the_row(up_for: float, row: int) -> None:
    """S-16: a host that comes and goes is quarantined, too."""
    health = after_success(fail(HostHealth(), 0.0, AFTER - 1), 100.0)
    assert fail(health, 100.0 + up_for).row == row


def test_the_pause_is_as_long_as_the_host_has_been_down() -> None:
    """S-16: at least a minute, at most an hour."""
    health = fail(HostHealth(), 0.0, AFTER)
    assert quarantine_pause(health, 3.0) == 60
    assert quarantine_pause(health, 63.0) == 63
    assert quarantine_pause(health, 500.0) == 500
    assert quarantine_pause(health, 100_000.0) == 3600


def test_a_flapping_host_waits_longer_each_time() -> None:
    """S-16: the first pause doubles with each return that did not last; one that did makes it short again."""
    health, now, pauses = fail(HostHealth(), 0.0, AFTER), 10.0, []
    for _ in range(8):
        now += quarantine_pause(health, now)
        pauses.append(quarantine_pause(health, health.since))
        health = after_success(health, now)
        now += 30.0
        health = fail(health, now)
        assert is_quarantined_by(health, AFTER)
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    health = fail(after_success(health, now + 60.0), now + 60.0 + FLAP_SECONDS)
    assert not is_quarantined_by(health, AFTER)
    assert quarantine_pause(health, health.since) == 60


@pytest.mark.parametrize(
    ("down", "hosts", "ours"), [(3, 3, False), (2, 4, False), (3, 4, True), (50, 100, False), (51, 100, True)]
)
def test_most_hosts_down_is_our_network(down: int, hosts: int, ours: bool) -> None:
    """S-16: a launcher that has lost its network takes no host from the others."""
    assert is_our_network(down, hosts) is ours
