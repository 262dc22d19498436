# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.uploads: which uploads the workers of a builder begin, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.exceptions import ZKConnectionError
from nodepool.plan.retries import Backoff
from tests.support.image_site import IMAGE, ImageSite
from tests.support.wait import DEADLINE_SECONDS, wait_for

MakeSite = Callable[..., ImageSite]


def test_builds_that_are_not_here(site: ImageSite) -> None:
    """U-1, U-10: of the newest build this builder has no file: nothing is uploaded, nothing older either."""
    site.build()
    newest = site.build()
    site.files.remove(IMAGE, newest.key)
    assert site.pass_once() is None
    assert site.cloud().images() == []


def test_paused_images(site: ImageSite) -> None:
    """P-1: a pause of builds, in ZooKeeper or the configuration, keeps no upload."""
    build = site.build()
    site.store.set_paused(IMAGE, True)
    site.config.diskimages[IMAGE].pause = True
    assert site.pass_once() == 0
    assert site.states(build) == ["ready"]


def test_paused_provider_image(make_site: MakeSite) -> None:
    """P-2, P-3: no upload there, others go on; what is there stays usable."""
    site = make_site(["a", "b"])
    first = site.build()
    old = site.upload(first, "a")
    site.config.providers["a"].diskimages[IMAGE].pause = True  # type: ignore[attr-defined]
    second = site.build()
    assert [site.pass_once() for _ in range(2)] == [0, None]
    assert (site.states(second, "a"), site.states(second, "b")) == ([], ["ready"])
    site.clean()
    current = site.view().current_upload("a")
    assert current is not None
    assert current.external_id == old.external_id


def test_stop(site: ImageSite) -> None:
    """U-11: a stop ends what hangs in the cloud together with its provider; nothing is left there."""
    build = site.build()
    site.cloud().set(hanging_uploads=True)
    site.start(1)
    site.wake()
    wait_for("the upload hangs", lambda: site.cloud().calls["upload"] == 1)
    site.threads[0].stop()
    site.providers["cloud"].stop()
    site.threads[0].join(DEADLINE_SECONDS)
    assert not site.threads[0].is_alive()
    assert site.cloud().images() == []
    # The clean-up may have come by.
    assert site.states(build) in (["failed"], ["deleting"], [])


def test_events_are_enough(make_site: MakeSite) -> None:
    """A build is uploaded everywhere, and what has to go goes, without anybody who looks now and then."""
    site = make_site(["a", "b"])
    site.start()
    builds = [site.build() for _ in range(4)]
    for provider in ("a", "b"):
        wait_for("the newest is there", lambda name=provider: "ready" in site.states(builds[-1], name))  # type: ignore[misc]
        wait_for("at most two are kept", lambda name=provider: len(site.cloud(name).images()) <= 2)  # type: ignore[misc]
    wait_for("records of others are gone", lambda: site.states(builds[0], "a") == [] == site.states(builds[0], "b"))


def test_configuration_between_uploads(make_site: MakeSite) -> None:
    """U-7: what is not wanted any more is not begun."""
    site = make_site(["a", "b"])
    build = site.build()
    assert site.pass_once() == 0
    (done,) = [provider for provider in ("a", "b") if site.states(build, provider)]
    left = "b" if done == "a" else "a"
    site.config.providers[left].diskimages.clear()  # type: ignore[attr-defined]
    assert site.pass_once() is None
    assert site.states(build, left) == []


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
