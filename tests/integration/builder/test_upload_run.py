# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.uploads: uploads of a builder to clouds in memory, step by step."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from nodepool.builder import uploads as builder_uploads
from nodepool.driver.framework import uploads
from nodepool.driver.framework.uploads import UploadInterrupted
from nodepool.exceptions import ZKConnectionError
from nodepool.metrics.catalog import IMAGE_UPDATE
from nodepool.metrics.registry import Distribution
from nodepool.model.image import ImageUpload, Promotion
from nodepool.plan.images import UploadJob
from nodepool.plan.retries import Backoff
from nodepool.zk import caches
from tests.support.image_site import IMAGE, MD5, ImageSite, MakeSite
from tests.support.pool_znodes import PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.wait import DEADLINE_SECONDS, present, wait_for
from tests.support.zookeeper import ZooKeeperServer


def running(site: ImageSite) -> threading.Thread:
    """One pass in the background, which hangs in the cloud."""
    site.cloud().set(hanging_uploads=True)
    before = site.cloud().calls["upload"]
    worker = site.worker(9)
    site.sync()
    thread = threading.Thread(target=worker.run_once, name="pass")
    thread.start()
    wait_for("the upload hangs", lambda: site.cloud().calls["upload"] > before)
    return thread


def ended(site: ImageSite, thread: threading.Thread) -> None:
    site.cloud().set(hanging_uploads=False)
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


def test_upload(make_site: MakeSite) -> None:
    """U-1, U-3, U-4, U-5, D-1: name, properties and content of the image, and the record that tells of it."""
    site = make_site(
        image={"metadata": {"os": "linux", "colour": "red"}, "username": "not used"},
        section={"image-name-format": "{image_name}-{upload_id}-{timestamp}"},
    )
    site.config.providers["cloud"].diskimages[IMAGE].meta = {"colour": "blue"}  # type: ignore[attr-defined]
    build = site.build()
    assert site.pass_once() == 0
    (record,) = site.uploads(build)
    (image,) = site.cloud().images()
    assert (record.id, record.state, record.external_id, record.format) == ("0000000001", "ready", image.id, "qcow2")
    assert (record.username, record.python_path, record.shell_type) == ("fedora", "auto", None)
    assert image.name == record.external_name
    assert image.name.startswith("debian-0000000001-1")
    assert image.metadata == {
        "os": "linux",
        "colour": "blue",
        "nodepool_provider_name": "cloud",
        "nodepool_build_id": build.key,
        "nodepool_upload_id": "0000000001",
    }
    assert (image.md5, image.format) == (MD5, "qcow2")
    measured = site.registry.snapshot()[IMAGE_UPDATE.series(IMAGE, "cloud")]
    assert isinstance(measured, Distribution)
    assert measured.count == 1
    assert site.shared.uploads.as_status() == {}
    assert site.pass_once() is None, "there is nothing more to do"


def test_candidate(make_site: MakeSite) -> None:
    """CA-1: the first upload is used at once, the next one is older than it for those who know no candidates."""
    site = make_site(image={"promote_canary": 0.2, "promote_check": "true"})
    first = site.build()
    site.pass_once()
    (current,) = site.uploads(first)
    assert current.candidate is None
    second = site.build()
    site.pass_once()
    (candidate,) = site.uploads(second)
    assert candidate.candidate == Promotion(check="true", canary=0.2)
    assert (candidate.state, candidate.state_time) == ("ready", present(current.state_time) - 0.001)
    found = site.store.most_recent_upload(IMAGE, "cloud"), site.cache.snapshot().image(IMAGE).candidate("cloud")
    assert [one and one.build_id for one in found] == [first.id, second.id]
    assert site.pass_once() is None, "it is uploaded"
    # Marks that are no promotion of ours are candidates all the same.
    for mark in (True, {"canary": 3}, {"canary": "much"}):
        assert (
            ImageUpload.from_dict({"state": "ready", "candidate": mark}, IMAGE, "b", "p", "1").candidate == Promotion()
        )


def test_while_it_runs(site: ImageSite, znodes: PoolZnodes) -> None:
    """U-2, 6.3: the record is `uploading` and has the name, the lock is held, and it is told how far it is."""
    build = site.build()
    thread = running(site)
    (record,) = site.uploads(build)
    assert (record.state, record.external_id) == ("uploading", None)
    assert str(record.external_name).startswith("debian-1")
    assert site.view().builds[build.key].uploading == {"cloud"}
    (status,) = site.shared.uploads.as_status().items()
    assert status[0] == f"debian/{build.key}/cloud/0000000001"
    assert status[1]["size"] == 10
    assert site.pass_once(1) is None, "another worker does not begin the same"
    ended(site, thread)
    assert site.states(build) == ["ready"]


def test_failed(site: ImageSite, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-6, U-9: nothing is left in the cloud, the record tells just that; tried again later, with a new number."""
    monkeypatch.setattr("nodepool.plan.images.BACKOFF", Backoff(1000.0, 1000.0))
    build = site.build()
    site.cloud().set(broken_uploads=1)
    assert site.pass_once() == 0
    (record,) = site.uploads(build)
    assert (record.state, record.external_id, record.external_name, record.format) == ("failed", None, None, None)
    assert site.cloud().images() == []
    assert "connection reset" in caplog.text
    assert 0 < present(site.pass_once()) <= 1000, "U-15: it is not tried again at once"
    site.queue.configuration_changed()
    assert site.pass_once() == 0
    assert site.states(build) == ["failed", "ready"]


def test_name_that_cannot_be_made(make_site: MakeSite, caplog: pytest.LogCaptureFixture) -> None:
    """U-3: a mistake in the format is told, and nothing is sent."""
    site = make_site(section={"image-name-format": "{image_name}-{nothing}"})
    build = site.build()
    site.pass_once()
    assert site.states(build) == ["failed"]
    assert "it knows the fields image_name, upload_id and timestamp" in caplog.text
    assert site.cloud().calls["create"] == 0


def hook(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return {"post-upload-hook": str(path)}


@pytest.mark.parametrize("deletion_refused", [None, False, True])
def test_hook(make_site: MakeSite, tmp_path: Path, deletion_refused: bool | None) -> None:
    """U-8: it gets provider, id and file. When it refuses, the image is deleted in the cloud; if that fails, the record
    keeps its id for the clean-up.
    """
    status = 0 if deletion_refused is None else 1
    site = make_site(section=hook(tmp_path, f'echo "$@" > {tmp_path}/called; exit {status}'))
    build = site.build()
    site.cloud().set(refused_deletions=int(deletion_refused or False))
    site.pass_once()
    (record,) = site.uploads(build)
    provider, image_id, path = (tmp_path / "called").read_text().split()
    assert (provider, path) == ("cloud", str(site.files.path(IMAGE, build.key, "qcow2")))
    assert record.state == ("failed" if status else "ready")
    left = [image.id for image in site.cloud().images()]
    assert left == ([] if deletion_refused is False else [image_id])
    assert record.external_id == (left[0] if left else None)
    site.clean()
    assert len(site.cloud().images()) == 1 - status


def test_somebody_else_uploads(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-2: the lock of build and provider decides; who did not get it looks again a little later."""
    monkeypatch.setattr(builder_uploads, "PUT_OFF_SECONDS", 1000.0)
    build = site.build()
    job = present(site.queue.take()[0])
    with site.store.upload_lock(IMAGE, build.key, "cloud"):
        outcome = run_of(site, job).run()
    assert outcome is builder_uploads.Outcome.NOT_DUE
    site.queue.ended(job, outcome, None)
    assert site.states(build) == []
    assert 0 < present(site.pass_once()) <= 1000


def run_of(site: ImageSite, job: UploadJob) -> builder_uploads.UploadRun:
    return builder_uploads.UploadRun(site.shared, job, lambda: False, logging.getLogger("test"))


@pytest.mark.parametrize("change", ["uploaded", "deleting", "no file", "paused", "not listed", "no provider"])
def test_checked_again_under_the_lock(site: ImageSite, change: str) -> None:
    """U-2, U-7, U-13, P-2: what has changed since it was chosen counts; no record is made."""
    build = site.build()
    site.sync()
    job = present(site.queue.take()[0])
    section: Any = site.config.providers["cloud"]
    if change == "uploaded":
        site.upload(build)
    elif change == "deleting":
        build.state = "deleting"
        site.store.store_build(build)
    elif change == "no file":
        site.files.remove(IMAGE, build.key)
    elif change == "paused":
        section.diskimages[IMAGE].pause = True
    elif change == "not listed":
        section.diskimages.clear()
    else:
        site.providers.clear()
    before = site.states(build)
    assert run_of(site, job).run() is builder_uploads.Outcome.NOT_DUE
    assert site.states(build) == before


@pytest.mark.parametrize(("look_seconds", "state", "images"), [(1000.0, "deleting", 2), (0.0, "failed", 1)])
def test_overtaken(
    site: ImageSite, monkeypatch: pytest.MonkeyPatch, look_seconds: float, state: str, images: int
) -> None:
    """U-12: an older build is never stored ready after a newer one; its image goes. It is asked on its way, or not."""
    monkeypatch.setattr(builder_uploads, "LOOK_SECONDS", look_seconds)
    older = site.build()
    thread = running(site)
    newer = site.upload(site.build())
    ended(site, thread)
    assert (site.states(older), len(site.cloud().images())) == ([state], images)
    site.clean()
    assert site.states(older) == []
    assert [image.id for image in site.cloud().images()] == [newer.external_id]


@pytest.mark.parametrize(("resumes", "state"), [(False, "failed"), (True, "uploading")])
def test_builder_stops(site: ImageSite, monkeypatch: pytest.MonkeyPatch, resumes: bool, state: str) -> None:
    """R-4, U-11: the record of an upload that another one goes on with stays until then."""
    monkeypatch.setattr(type(site.config.providers["cloud"]), "resumes_uploads", resumes)
    build = site.build()
    with monkeypatch.context() as patch:
        patch.setattr(site.cloud(), "create", interrupted)
        site.pass_once()
    assert site.states(build) == [state]
    site.clean()
    assert site.states(build) == (["uploading"] if resumes else [])
    if resumes:
        site.pass_once()
        site.clean()
        assert site.states(build) == ["ready"]


def interrupted(*_: Any) -> None:
    raise UploadInterrupted("the builder stops")


@pytest.mark.parametrize("refused", [0, 2])
def test_lock_is_lost(
    site: ImageSite, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """6.3, D-3: another builder may have taken the record for abandoned: it is not made ready, and the image goes,
    although the cloud refuses that at first.
    """
    monkeypatch.setattr(builder_uploads, "DELETE_PAUSES", (0.0, 0.0))
    site.cloud().set(refused_deletions=refused)
    build = site.build()
    thread = running(site)
    lock_dir = caches.upload_lock(IMAGE, build.key, "cloud")
    for contender in znodes.kazoo.get_children(lock_dir):
        znodes.kazoo.delete(f"{lock_dir}/{contender}")
    ended(site, thread)
    assert site.states(build) == ["uploading"]
    assert site.cloud().images() == []
    assert "is lost" in caplog.text
    site.clean()
    assert site.states(build) == []


def test_session_is_lost(site: ImageSite, zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture) -> None:
    """6.3: as when the builder stood still for long: the upload ends on its way, and is made anew."""
    caplog.set_level("INFO")
    build = site.build()
    thread = running(site)
    epoch = site.client.session_epoch
    expire_session(zookeeper.plain_hosts(), site.client.kazoo.client_id)
    wait_for("there is another session", lambda: site.client.session_epoch > epoch and site.client.connected)
    ended(site, thread)
    assert "the session with ZooKeeper was lost" in caplog.text
    assert site.cloud().images() == []
    wait_for("the cache follows", site.cache.ready.is_set)
    site.clean()
    assert site.states(build) == []
    wait_for("it is uploaded", lambda: (site.pass_once(), site.states(build))[1] == ["ready"])


def test_nothing_is_made_while_the_session_is_doubtful(site: ImageSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4, 6.3: without a connection to ZooKeeper nobody knows whether the lock is held: an upload waits for that."""
    certain = threading.Event()
    asked = threading.Event()

    def is_certain(_: object) -> bool:
        asked.set()
        return certain.is_set()

    monkeypatch.setattr(site.store, "is_certain", is_certain)
    create = site.cloud().create

    def checked(*arguments: Any) -> Any:
        uploads.check()
        return create(*arguments)

    monkeypatch.setattr(site.cloud(), "create", checked)
    build = site.build()
    site.start(1)
    site.wake()
    assert asked.wait(DEADLINE_SECONDS)
    assert (site.states(build), site.cloud().images()) == (["uploading"], [])
    certain.set()
    wait_for("it is uploaded", lambda: site.states(build) == ["ready"])


# -- which uploads the workers of a builder begin, and when


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
