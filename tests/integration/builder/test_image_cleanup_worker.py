# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.image_cleanup: what goes in ZooKeeper, and with it in clouds and on the disk."""

from __future__ import annotations

import os
import threading
from functools import partial

import pytest

from nodepool.builder import image_cleanup
from nodepool.builder.progress import BuilderOptions, BuildKey, BuildProgress
from nodepool.clock import wall_time
from nodepool.model.image import ImageBuild
from nodepool.plan.images import ORPHAN_AGE_SECONDS
from nodepool.plan.retries import Backoff
from nodepool.zk import caches
from tests.support.image_site import IMAGE, ImageSite, MakeSite
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import present, wait_for


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
    assert 400 < present(site.cleanup.run_once()) <= 500, "the cloud is not asked at each change"
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
    assert 0 < present(site.cleanup.run_once()) <= 500
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


# -- which files go from the disk of a builder


NEVER = "f" * 32


def orphan(site: ImageSite, age_seconds: float) -> None:
    """A file of a build without a record."""
    path = site.files.path(IMAGE, NEVER, "qcow2")
    path.write_bytes(b"x")
    os.utime(path, times=(wall_time() - age_seconds,) * 2)


def test_files_without_a_record(site: ImageSite) -> None:
    """R-9, R-15: only old ones, and only when this builder has seen a record of its own."""
    orphan(site, ORPHAN_AGE_SECONDS + 60)
    site.clean()
    assert site.on_disk() == {NEVER}, "the records may be restored yet"
    build = site.build()
    site.clean()
    assert site.on_disk() == {build.key}
    orphan(site, ORPHAN_AGE_SECONDS - 60)
    site.clean()
    assert site.on_disk() == {build.key, NEVER}
    site.cleanup = site.make_cleanup(options=BuilderOptions(clean_orphans=True))
    site.clean()
    assert site.on_disk() == {build.key}


def test_records_that_vanish(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-15: somebody empties ZooKeeper while the builder runs. The records may be restored for an hour."""
    now = wall_time()
    monkeypatch.setattr(image_cleanup, "wall_time", lambda: now)
    builds = [site.build(), site.build()]
    old = (now - 2 * ORPHAN_AGE_SECONDS,) * 2
    for build in builds:
        for file in site.files.of_build(IMAGE, build.key):
            os.utime(file.path, times=old)
    site.clean()
    site.client.kazoo.delete(caches.image(IMAGE), recursive=True)
    site.clean()
    assert site.on_disk() == {build.key for build in builds}
    now += 2 * ORPHAN_AGE_SECONDS
    site.clean()
    assert site.on_disk() == {build.key for build in builds}, "no record of this builder is there at all"
    now -= ORPHAN_AGE_SECONDS + 1
    new = site.build()
    site.clean()
    assert site.on_disk() == {build.key for build in [*builds, new]}, "they were there a moment ago"
    now += 2
    site.clean()
    assert site.on_disk() == {new.key}


# -- images go in clouds that refuse, are away or hang


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
    assert 0 < present(site.cleanup.run_once()) <= 100


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
