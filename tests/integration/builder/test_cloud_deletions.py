# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.image_cleanup: images go in clouds that refuse, are away or hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from nodepool.builder import image_cleanup
from nodepool.plan.retries import Backoff
from tests.support.image_site import ImageSite
from tests.support.wait import wait_for

MakeSite = Callable[..., ImageSite]


def test_refused_deletion(site: ImageSite) -> None:
    """R-7: an image that is in use keeps its record until the cloud deletes it."""
    build = site.build()
    upload = site.upload(build)
    upload.state = "deleting"
    site.store.store_upload(upload)
    site.cloud().set(refused_deletions=2)
    site.clean()
    assert site.states(build) == ["deleting"]
    for attempts in (2, 3):
        wait_for("the pause is over", partial(clean_until, site, attempts))
    assert site.states(build) == []
    assert site.cloud().images() == []


def clean_until(site: ImageSite, attempts: int) -> bool:
    """Has the cloud been asked so often after another pass?"""
    site.clean()
    return site.cloud().calls["delete"] == attempts


def test_back_off_of_deletions(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-7: a cloud that refuses is not asked at each change."""
    monkeypatch.setattr(image_cleanup, "BACKOFF", Backoff(100.0, 100.0))
    build = site.build()
    site.upload(build, state="deleting", external_id="i-1", external_name="n")
    site.cloud().set(images_down=True)
    site.clean_fully()
    assert site.cloud().calls["delete"] == 1
    wait_seconds = site.cleanup.run_once()
    assert wait_seconds is not None
    assert 0 < wait_seconds <= 100


def test_deletion_that_nobody_wants_any_more(site: ImageSite) -> None:
    """R-7, R-12: a provider goes while its images cannot be deleted. Its failures cause no passes."""
    build = site.build()
    site.upload(build, state="deleting", external_id="i-1", external_name="n")
    site.cloud().set(images_down=True)
    site.clean_fully()
    assert site.cloud().calls["delete"]
    site.configure([])
    wait_for("its pause is over", lambda: site.cleanup.run_once() is None)
    assert site.states(build) == ["deleting"]


def test_slow_cloud(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-6: files go and other clouds are cleaned while one hangs; the record goes after the last upload."""
    site = make_site(["slow", "quick"])
    build = site.build()
    uploads = {provider: site.upload(build, provider) for provider in ("slow", "quick")}
    go_on = threading.Event()
    delete = site.providers["slow"].deleteImage

    def hangs(name: str, id: str) -> None:
        assert go_on.wait(60)
        delete(name, id)

    monkeypatch.setattr(site.providers["slow"], "deleteImage", hangs)
    build.state = "deleting"
    site.store.store_build(build)
    site.sync()
    site.cleanup.run_once()
    wait_for("it is gone in the quick cloud", lambda: site.cloud("quick").images() == [])
    site.sync()
    site.cleanup.run_once()
    assert site.on_disk() == set()
    assert set(site.view().builds) == {build.key}
    assert [image.id for image in site.cloud("slow").images()] == [uploads["slow"].external_id]
    go_on.set()
    site.clean_fully()
    assert set(site.view().builds) == set()
