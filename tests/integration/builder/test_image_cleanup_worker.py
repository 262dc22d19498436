# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.image_cleanup_worker and cloud_deletions: what goes in ZooKeeper, in clouds and on the disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial

import pytest

from nodepool.builder import cloud_deletions
from nodepool.clock import wall_time
from nodepool.model.image import ImageBuild
from nodepool.plan.backoff import Backoff
from nodepool.plan.image_disk import ORPHAN_AGE_SECONDS
from nodepool.zk import image_paths
from tests.support.image_site import IMAGE, ImageSite
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

MakeSite = Callable[..., ImageSite]

NEVER = "f" * 32


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_deletions, "BACKOFF", Backoff(0.01, 0.1))


def cleaned(site: ImageSite, passes: int = 4) -> None:
    """What is judged in one pass may make more work for the next."""
    for _ in range(passes):
        site.clean()


def on_disk(site: ImageSite) -> set[str]:
    """Builds with files."""
    return {build_id for _, build_id in site.files.builds()}


def test_two_newest_are_kept(site: ImageSite) -> None:
    """R-1, R-2, R-6, R-9: of four builds with uploads two stay, with their images and files."""
    builds = [site.build() for _ in range(4)]
    kept = [site.upload(build).external_id for build in builds][2:]
    cleaned(site)
    assert set(site.view().builds) == {build.key for build in builds[2:]}
    assert [image.id for image in site.cloud().images()] == kept
    assert on_disk(site) == {build.key for build in builds[2:]}


def test_old_upload_is_kept(site: ImageSite) -> None:
    """R-2: a provider's newest two uploads stay, and so do their builds, however old."""
    builds = [site.build() for _ in range(4)]
    old = site.upload(builds[0])
    cleaned(site)
    assert set(site.view().builds) == {builds[0].key, builds[2].key, builds[3].key}
    assert [image.id for image in site.cloud().images()] == [old.external_id]


def test_image_of_one_provider_less(make_site: MakeSite) -> None:
    """R-3: it is gone there, and only there. R-12: providers that are not configured are not touched."""
    site = make_site(["a", "b", "c"])
    build = site.build()
    for provider in ("a", "b", "c"):
        site.upload(build, provider)
    site.config.providers["a"].diskimages.clear()  # type: ignore[attr-defined]
    del site.config.providers["c"]
    cleaned(site)
    assert [site.states(build, provider) for provider in ("a", "b", "c")] == [[], ["ready"], ["ready"]]
    assert [len(site.cloud(provider).images()) for provider in ("a", "b", "c")] == [0, 1, 1]


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
    cleaned(site)
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
    cleaned(site)
    assert site.states(build) == []
    assert [image.id for image in site.cloud().images()] == [kept.id], "others may have that name, too"


def test_image_that_comes_after_the_look(site: ImageSite, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4: a builder that stood still makes an image while others clean up after it; no builder forgets the upload."""
    monkeypatch.setattr("nodepool.plan.image_cleanup.ABANDONED_SECONDS", 500.0)
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
    monkeypatch.setattr("nodepool.plan.image_cleanup.ABANDONED_SECONDS", 0.0)
    make_site(clouds=site.clouds).clean()
    assert (site.states(build), site.cloud().images()) == ([], [])


def test_running_upload_is_left_alone(site: ImageSite, make_site: MakeSite) -> None:
    """R-4: as long as its worker holds the lock."""
    build = site.build()
    other = make_site(clouds=site.clouds)
    upload = site.upload(build, state="uploading")
    with other.store.upload_lock(IMAGE, build.key, "cloud"):
        image = site.put_image(build, upload.key)
        cleaned(site, 2)
        assert site.states(build) == ["uploading"]
        assert [found.id for found in site.cloud().images()] == [image.id]
    cleaned(site)
    assert site.states(build) == []
    assert site.cloud().images() == []


@pytest.mark.parametrize("state", ["building", "failed"])
def test_builds_that_came_to_nothing(site: ImageSite, state: str) -> None:
    """R-5, R-16: with all that diskimage-builder left. A running one is kept, and so are its files (R-9)."""
    build = site.build(state=state)
    site.files.base(IMAGE, build.key).with_suffix(".d").mkdir()
    site.building.add(build.key)
    if state == "building":
        with site.store.build_lock(IMAGE):
            cleaned(site, 2)
            assert set(site.view().builds) == {build.key}
    else:
        site.clean()
    assert on_disk(site) == {build.key}
    site.building.clear()
    cleaned(site)
    assert set(site.view().builds) == set()
    assert list(site.files.directory.iterdir()) == []


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
    monkeypatch.setattr(cloud_deletions, "BACKOFF", Backoff(100.0, 100.0))
    build = site.build()
    site.upload(build, state="deleting", external_id="i-1", external_name="n")
    site.cloud().set(images_down=True)
    cleaned(site)
    assert site.cloud().calls["delete"] == 1
    wait_seconds = site.cleanup.run_once()
    assert wait_seconds is not None
    assert 0 < wait_seconds <= 100


def test_deletion_that_nobody_wants_any_more(site: ImageSite) -> None:
    """R-7, R-12: a provider goes while its images cannot be deleted. Its failures cause no passes."""
    build = site.build()
    site.upload(build, state="deleting", external_id="i-1", external_name="n")
    site.cloud().set(images_down=True)
    cleaned(site)
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
    assert on_disk(site) == set()
    assert set(site.view().builds) == {build.key}
    assert [image.id for image in site.cloud("slow").images()] == [uploads["slow"].external_id]
    go_on.set()
    cleaned(site)
    assert set(site.view().builds) == set()


def test_image_removed_from_the_configuration(site: ImageSite, make_site: MakeSite) -> None:
    """R-11: everywhere, on all builders, each with its own files."""
    other = make_site(clouds=site.clouds)
    builds = [site.build(), other.build()]
    for build in builds:
        site.upload(build)
    for each in (site, other):
        each.configure(["cloud"], ["another"])
    for _ in range(3):
        cleaned(site, 1)
        cleaned(other, 1)
    assert set(site.view().builds) == set()
    assert site.cloud().images() == []
    assert on_disk(site) == on_disk(other) == set()


def test_build_of_a_builder_that_is_gone(site: ImageSite, make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-6, R-11: its record is left to it for a minute, so that it removes its files; then others remove it."""
    build = make_site(clouds=site.clouds).build()
    build.state = "deleting"
    site.store.store_build(build)
    monkeypatch.setattr("nodepool.plan.image_cleanup.OWN_BUILDER_SECONDS", 500.0)
    site.clean()
    wait_seconds = site.cleanup.run_once()
    assert wait_seconds is not None
    assert 0 < wait_seconds <= 500
    assert set(site.view().builds) == {build.key}
    monkeypatch.setattr("nodepool.plan.image_cleanup.OWN_BUILDER_SECONDS", 0.0)
    site.clean()
    assert set(site.view().builds) == set()


def test_image_that_was_never_configured(site: ImageSite, caplog: pytest.LogCaptureFixture) -> None:
    """R-14: another builder has another list of images: its name is told, once, before anything is removed."""
    build = ImageBuild("theirs")
    build.builder = "other.example.com"
    with site.store.build_lock("theirs") as lock:
        site.store.new_build(build, lock)
        build.state = "ready"
        site.store.store_build(build, lock)
    cleaned(site)
    assert site.view("theirs").builds == {}
    assert caplog.text.count("other.example.com") == 1


def test_delete_commands(site: ImageSite) -> None:
    """R-13: a build that is marked goes with all uploads; an upload that is marked goes alone, and is made again."""
    first, second = site.build(), site.build()
    uploads = [site.upload(build) for build in (first, second)]
    uploads[1].state = "deleting"
    site.store.store_upload(uploads[1])
    first.state = "deleting"
    site.store.store_build(first)
    cleaned(site)
    assert set(site.view().builds) == {second.key}
    assert site.states(second) == []
    assert site.cloud().images() == []
    assert site.pass_once() == 0
    assert site.states(second) == ["ready"]


def orphan(site: ImageSite, age_seconds: float) -> None:
    """A file of a build without a record."""
    path = site.files.path(IMAGE, NEVER, "qcow2")
    path.write_bytes(b"x")
    os.utime(path, times=(wall_time() - age_seconds,) * 2)


def test_files_without_a_record(site: ImageSite) -> None:
    """R-9, R-15: only old ones, and only when this builder has seen a record of its own."""
    orphan(site, ORPHAN_AGE_SECONDS + 60)
    cleaned(site, 1)
    assert on_disk(site) == {NEVER}, "the records may be restored yet"
    build = site.build()
    cleaned(site, 1)
    assert on_disk(site) == {build.key}
    orphan(site, ORPHAN_AGE_SECONDS - 60)
    cleaned(site, 1)
    assert on_disk(site) == {build.key, NEVER}
    site.cleanup = site.make_cleanup(clean_orphans=True)
    cleaned(site, 1)
    assert on_disk(site) == {build.key}


def test_records_that_vanish(site: ImageSite) -> None:
    """R-15: somebody empties ZooKeeper while the builder runs. The records may be restored for an hour."""
    now = wall_time()
    site.cleanup = site.make_cleanup(clock=lambda: now)
    builds = [site.build(), site.build()]
    old = (now - 2 * ORPHAN_AGE_SECONDS,) * 2
    for build in builds:
        for file in site.files.of_build(IMAGE, build.key):
            os.utime(file.path, times=old)
    cleaned(site, 1)
    site.client.kazoo.delete(image_paths.image(IMAGE), recursive=True)
    cleaned(site, 1)
    assert on_disk(site) == {build.key for build in builds}
    now += 2 * ORPHAN_AGE_SECONDS
    cleaned(site, 1)
    assert on_disk(site) == {build.key for build in builds}, "no record of this builder is there at all"
    now -= ORPHAN_AGE_SECONDS + 1
    new = site.build()
    cleaned(site, 1)
    assert on_disk(site) == {build.key for build in [*builds, new]}, "they were there a moment ago"
    now += 2
    cleaned(site, 1)
    assert on_disk(site) == {new.key}


def test_files_where_others_make_all_builds(site: ImageSite, make_site: MakeSite) -> None:
    """R-15: a record is deleted by hand, and this builder builds no more."""
    now = wall_time()
    site.cleanup = site.make_cleanup(clock=lambda: now)
    orphan(site, 2 * ORPHAN_AGE_SECONDS)
    make_site(clouds=site.clouds).build()
    cleaned(site, 1)
    now += ORPHAN_AGE_SECONDS - 1
    cleaned(site, 1)
    assert on_disk(site) == {NEVER}, "it has only been started"
    now += 2
    cleaned(site, 1)
    assert on_disk(site) == set()


def test_delete_after_upload(make_site: MakeSite) -> None:
    """R-10: a format goes when every provider that wants it has it; kept formats and the manifest stay."""
    site = make_site(["a", "b"], image={"delete_after_upload": True, "keep_formats": ["raw"]})
    build = site.build(formats=["qcow2", "raw", "vhd"])
    site.files.base(IMAGE, build.key).with_suffix(".d").mkdir()
    site.upload(build, "a")
    cleaned(site, 1)
    assert site.files.formats(IMAGE, build.key) == {"qcow2", "raw"}, "nobody uses vhd; b still needs qcow2"
    site.upload(build, "b")
    cleaned(site, 1)
    assert site.files.formats(IMAGE, build.key) == {"raw"}
    assert {file.extension for file in site.files.of_build(IMAGE, build.key)} >= {"raw", "raw.md5", "d"}


def test_unreadable_records(site: ImageSite, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-17: others are cleaned all the same; after a while the unreadable ones go, too, with what they made."""
    monkeypatch.setattr("nodepool.plan.image_cleanup.UNREADABLE_SECONDS", -60.0)
    bad, good, newer = site.build(), site.build(), site.build()
    upload = site.upload(bad, state="uploading")
    image = site.put_image(bad, upload.key)
    failed = site.upload(good, state="failed")
    znodes.kazoo.set(image_paths.build(IMAGE, bad.key), b"{nonsense")
    znodes.kazoo.set(image_paths.upload(IMAGE, bad.key, "cloud", upload.key), b"7")
    cleaned(site)
    assert failed.key not in [one.id for one in site.uploads(good)]
    assert set(site.view().builds) == {good.key, newer.key}
    assert image.id not in [found.id for found in site.cloud().images()]
    assert on_disk(site) == {good.key, newer.key}


def test_one_error_stops_no_other(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-17: whatever is raised over one build, others are cleaned."""
    builds = [site.build(state="failed") for _ in range(2)]
    store = site.store.store_build

    def broken(build: ImageBuild, under: object = None) -> None:
        if build.id == builds[0].id:
            raise RuntimeError("no luck")
        store(build, under)  # type: ignore[arg-type]

    monkeypatch.setattr(site.store, "store_build", broken)
    cleaned(site)
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
    cleaned(site, 1)
    cleaned(other, 1)
    assert site.cloud().images() == []
    assert site.cloud().calls["delete"] == len(uploads)


def test_many_failures_leave_nothing(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-15: a hundred failures in a row fill neither cloud nor ZooKeeper; then the next upload works."""
    monkeypatch.setattr("nodepool.plan.image_uploads.BACKOFF", Backoff(0.01, 0.01))
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
