# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.uploads: which uploads the workers of a builder begin, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.plan.retries import Backoff
from tests.support.image_site import ImageSite
from tests.support.wait import wait_for

MakeSite = Callable[..., ImageSite]


def test_events_are_enough(make_site: MakeSite) -> None:
    """A build is uploaded everywhere, and what has to go goes, without anybody who looks now and then."""
    site = make_site(["a", "b"])
    site.start()
    builds = [site.build() for _ in range(4)]
    for provider in ("a", "b"):
        wait_for("the newest is there", lambda name=provider: "ready" in site.states(builds[-1], name))  # type: ignore[misc]
        wait_for("at most two are kept", lambda name=provider: len(site.cloud(name).images()) <= 2)  # type: ignore[misc]
    wait_for("records of others are gone", lambda: site.states(builds[0], "a") == [] == site.states(builds[0], "b"))


def test_slow_cloud_holds_up_none(make_site: MakeSite) -> None:
    """U-15: with two workers and one cloud that hangs, the other gets its images."""
    site = make_site(["slow", "quick"], workers=2)
    site.configure(["slow", "quick"], ["i1", "i2", "i3"])
    site.cloud("slow").set(hanging_uploads=True)
    site.start(2)
    builds = [site.build(name) for name in ("i1", "i2", "i3")]
    for build in builds:
        wait_for("it is in the quick cloud", lambda one=build: site.states(one, "quick") == ["ready"])  # type: ignore[misc]
    assert [site.states(build, "slow") for build in builds].count([]) == 2


def test_zookeeper_is_away(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost connection before there is a record is no failure of the cloud: no back-off."""
    build = site.build()
    site.sync()

    def lost(*_: object) -> None:
        raise ZKConnectionError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(site.store, "build", lost)
        with pytest.raises(ZKConnectionError):
            site.worker().run_once()
    assert site.queue.running == frozenset()
    # A failure of the cloud would wait for longer.
    monkeypatch.setattr("nodepool.plan.images.BACKOFF", Backoff(1000.0, 1000.0))
    wait_for("it is uploaded", lambda: (site.pass_once(), site.states(build))[1] == ["ready"])
