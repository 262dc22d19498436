# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.image_cleanup: what goes in ZooKeeper, and with it in clouds and on the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from nodepool.builder.progress import BuildKey, BuildProgress
from nodepool.clock import wall_time
from nodepool.model.image import ImageBuild
from nodepool.plan.retries import Backoff
from nodepool.zk import caches
from tests.support.image_site import IMAGE, ImageSite
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

MakeSite = Callable[..., ImageSite]


@pytest.mark.parametrize("state", ["failed", "uploading"])
def test_what_an_upload_left(site: ImageSite, state: str) -> None:
    """R-4, R-8, D-3: the cloud is asked for images of an upload that has stored no id; they go before its record."""
    build = site.build()
    good = site.upload(build)
    bad = site.upload(build, state=state)
    left = site.put_image(build, bad.key)
    others = [
        site.put_image(build, "0000000099"),
        site.cloud().create("somebody's", "qcow2", {}),
        site.put_image(build, bad.key, name="of another provider"),
    ]
    others[2].metadata["nodepool_provider_name"] = "other"  # type: ignore[index]
    site.clean_fully()
    assert site.states(build) == ["ready"]
    there = [image.id for image in site.cloud().images()]
    assert there == [good.external_id, *(image.id for image in others)]
    assert left.id not in there


def test_abandoned_upload_without_metadata(site: ImageSite) -> None:
    """R-4: where a cloud keeps no ids, or gets them last, the image is known by its name, which tells the time."""
    build = site.build()
    name = f"debian-{wall_time():.0f}"
    site.upload(build, state="uploading", external_name=name)
    site.upload(build, state="uploading", external_name="debian")
    site.cloud().create(name, "qcow2", {})
    kept = site.cloud().create("debian", "qcow2", {})
    site.clean_fully()
    assert site.states(build) == []
    assert [image.id for image in site.cloud().images()] == [kept.id], "others may have that name, too"


def test_image_that_comes_after_the_look(site: ImageSite, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4: a builder that stood still makes an image while others clean up after it; no builder forgets the upload."""
    monkeypatch.setattr("nodepool.plan.images.ABANDONED_SECONDS", 500.0)
    other = make_site(clouds=site.clouds)
    build = site.build()
    bad = site.upload(build, state="uploading", external_name="debian-1")
    site.put_image(build, bad.key)
    site.clean()
    assert (site.states(build), site.cloud().images()) == (["deleting"], [])
    site.put_image(build, bad.key)
    wait_seconds = site.cleanup.run_once()
    assert wait_seconds is not None
    assert 400 < wait_seconds <= 500, "the cloud is not asked at each change"
    other.clean()
    assert (site.states(build), site.cloud().images()) == (["deleting"], [])
    site.put_image(build, bad.key)
    monkeypatch.setattr("nodepool.plan.images.ABANDONED_SECONDS", 0.0)
    make_site(clouds=site.clouds).clean()
    assert (site.states(build), site.cloud().images()) == ([], [])


def test_running_upload_is_left_alone(site: ImageSite, make_site: MakeSite) -> None:
    """R-4: as long as its worker holds the lock."""
    build = site.build()
    other = make_site(clouds=site.clouds)
    upload = site.upload(build, state="uploading")
    with other.store.upload_lock(IMAGE, build.key, "cloud"):
        image = site.put_image(build, upload.key)
        site.clean(2)
        assert site.states(build) == ["uploading"]
        assert [found.id for found in site.cloud().images()] == [image.id]
    site.clean_fully()
    assert site.states(build) == []
    assert site.cloud().images() == []


@pytest.mark.parametrize("state", ["building", "failed"])
def test_builds_that_came_to_nothing(site: ImageSite, state: str) -> None:
    """R-5, R-16: with all that diskimage-builder left. A running one is kept, and so are its files (R-9)."""
    build = site.build(state=state)
    site.files.base(IMAGE, build.key).with_suffix(".d").mkdir()
    with site.shared.builds.running(BuildKey(IMAGE, build.key), BuildProgress(0.0)):
        if state == "building":
            with site.store.build_lock(IMAGE):
                site.clean(2)
                assert set(site.view().builds) == {build.key}
        else:
            site.clean()
        assert site.on_disk() == {build.key}
    site.clean_fully()
    assert set(site.view().builds) == set()
    assert list(site.files.directory.iterdir()) == []


def test_build_of_a_builder_that_is_gone(site: ImageSite, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-6, R-11: its record is left to it for a minute, so that it removes its files; then others remove it."""
    build, own = make_site(clouds=site.clouds).build(), site.build()
    for one in (build, own):
        one.state = "deleting"
        site.store.store_build(one)
    monkeypatch.setattr("nodepool.plan.images.OWN_BUILDER_SECONDS", 500.0)
    site.clean()
    wait_seconds = site.cleanup.run_once()
    assert wait_seconds is not None
    assert 0 < wait_seconds <= 500
    assert set(site.view().builds) == {build.key}
    monkeypatch.setattr("nodepool.plan.images.OWN_BUILDER_SECONDS", 0.0)
    site.clean()
    assert set(site.view().builds) == set()


def test_unreadable_records(site: ImageSite, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-17: others are cleaned all the same; after a while the unreadable ones go, too, with what they made."""
    monkeypatch.setattr("nodepool.plan.images.UNREADABLE_SECONDS", -60.0)
    bad, good, newer = site.build(), site.build(), site.build()
    upload = site.upload(bad, state="uploading")
    image = site.put_image(bad, upload.key)
    failed = site.upload(good, state="failed")
    znodes.kazoo.set(caches.build(IMAGE, bad.key), b"{nonsense")
    znodes.kazoo.set(caches.upload(IMAGE, bad.key, "cloud", upload.key), b"7")
    site.clean_fully()
    assert failed.key not in [one.id for one in site.uploads(good)]
    assert set(site.view().builds) == {good.key, newer.key}
    assert image.id not in [found.id for found in site.cloud().images()]
    assert site.on_disk() == {good.key, newer.key}


def test_one_error_stops_no_other(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-17: whatever is raised over one build, others are cleaned."""
    builds = [site.build(state="failed") for _ in range(2)]
    store = site.store.store_build

    def broken(build: ImageBuild, under: object = None) -> None:
        if build.id == builds[0].id:
            raise RuntimeError("no luck")
        store(build, under)  # type: ignore[arg-type]

    monkeypatch.setattr(site.store, "store_build", broken)
    site.clean_fully()
    assert set(site.view().builds) == {builds[0].key}


def test_two_builders_clean(site: ImageSite, make_site: MakeSite) -> None:
    """Each upload is deleted once, whoever does it."""
    other = make_site(clouds=site.clouds)
    build = site.build()
    uploads = [site.upload(build) for _ in range(6)]
    for upload in uploads:
        upload.state = "deleting"
        site.store.store_upload(upload)
    site.sync()
    other.sync()
    threads = [threading.Thread(target=each.cleanup.run_once) for each in (site, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for("all are gone", lambda: site.states(build) == [])
    site.clean()
    other.clean()
    assert site.cloud().images() == []
    assert site.cloud().calls["delete"] == len(uploads)


def test_many_failures_leave_nothing(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-15: a hundred failures in a row fill neither cloud nor ZooKeeper; then the next upload works."""
    monkeypatch.setattr("nodepool.plan.images.BACKOFF", Backoff(0.01, 0.01))
    build = site.build()
    site.cloud().set(lost_images=50, corrupted_uploads=50)
    most = 0
    site.start(1)

    def ready() -> bool:
        nonlocal most
        most = max(most, len(site.uploads(build)), len(site.cloud().images()))
        return "ready" in site.states(build)

    wait_for("it is uploaded at last", ready)
    wait_for("only that is left", lambda: len(site.cloud().images()) == 1 and site.states(build) == ["ready"])
    assert most <= 10
    assert site.cloud().calls["create"] == 101
