# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.images and what is beside it: builds, uploads, locks, cache, import (reference/zookeeper 6)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.model.image import NO_IMAGES, ImageBuild, ImageUpload, ImageView
from nodepool.model.status import BuildStatus
from nodepool.zk import caches, transactions
from nodepool.zk.caches import ImageCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.images import ImageStore, export_images, import_images, read_images
from nodepool.zk.status import builder_status
from nodepool.zk.transactions import Transaction, ZkLock
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.image_znodes import IMAGES, ImageZnodes
from tests.support.pool_znodes import PoolZnodes
from tests.support.tables import table
from tests.support.wait import present, wait_for

RECORD = json.dumps({"state": "ready", "state_time": 1.0})
BUILD = f"{IMAGES}/debian/builds/b1"
UPLOADS = f"{BUILD}/providers/lab/images"


def at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """It is so late from now on."""
    monkeypatch.setattr(sys.modules[ImageStore.__module__], "wall_time", lambda: seconds)


@pytest.fixture
def store(client: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch) -> ImageStore:
    """It is 1234.5 s after the epoch."""
    at(monkeypatch, 1234.5)
    return ImageStore(client)


@pytest.fixture
def second(other: ZooKeeperClient) -> ImageStore:
    """Of another builder."""
    return ImageStore(other)


@pytest.fixture
def images(znodes: PoolZnodes) -> ImageZnodes:
    return znodes


@pytest.fixture
def build(store: ImageStore) -> ImageBuild:
    """Ready."""
    made = ImageBuild("debian")
    made.builder = "builder.example.com"
    with store.build_lock("debian") as lock:
        store.new_build(made, lock)
        made.state, made.formats = "ready", ["raw", "qcow2"]
        store.store_build(made, lock)
    return made


@pytest.fixture
def upload(store: ImageStore, build: ImageBuild) -> ImageUpload:
    """Ready, in `cloud`."""
    made = ImageUpload("debian", build.key, "cloud")
    with store.upload_lock("debian", build.key, "cloud") as lock:
        store.new_upload(made, lock)
        made.state, made.external_id = "ready", "image-1"
        store.store_upload(made, lock)
    return made


def names(upload: ImageUpload) -> tuple[str, str, str, str]:
    return ("debian", upload.build_id, "cloud", upload.key)


def read(store: ImageStore, upload: ImageUpload) -> ImageUpload:
    return present(store.upload(*names(upload)))


# -- reading


def test_nothing_there(store: ImageStore, client: ZooKeeperClient) -> None:
    assert (store.image_names(), store.builds("debian"), store.most_recent_upload("debian", "cloud")) == ([], [], None)
    assert (store.upload_providers("debian", "1"), store.uploads("debian", "1", "cloud")) == ([], [])
    store.erase_provider("debian", "1", "cloud")
    assert (read_images(client), builder_status(client).builds) == (NO_IMAGES, {})


def test_builds(store: ImageStore, images: ImageZnodes, caplog: pytest.LogCaptureFixture) -> None:
    """Ids are 32 hex digits or, from old releases, a sequence; `lock` is none. A bad record is logged once."""
    images.put("debian/builds/lock")
    for build_id, fields in (("0000000001", {}), ("a" * 32, {"formats": "raw,qcow2"}), ("bad", {"state": "odd"})):
        images.add_build("debian", build_id, **fields)
    images.put("fedora")
    assert sorted(store.image_names()) == ["debian", "fedora"]
    found = {build.id: build for build in store.builds("debian")}
    assert sorted(str(i) for i in found) == ["0000000001", "a" * 32]
    assert found["a" * 32].formats == ["raw", "qcow2"]
    path = f"{IMAGES}/debian/builds/bad"
    for count, state in ((1, "odd"), (1, "ready"), (2, "odd")):
        images.kazoo.set(path, json.dumps({"state": state}).encode())
        for _ in range(3):
            store.builds("debian")
        assert caplog.text.count(f"Ignoring {path}") == count, "what becomes bad again is logged again"


def test_current_image(store: ImageStore, images: ImageZnodes, client: ZooKeeperClient) -> None:
    """6.2: the ready upload with the greatest state time, over all builds of this provider."""
    for build_id, number, state_time, state, provider in table(__file__, "uploads_of_an_image"):
        images.add_upload("debian", build_id, provider, number, state=state, state_time=state_time)
    found = present(ZooKeeper(client, None).getMostRecentImageUpload("debian", "cloud"))
    assert (found.build_id, found.id, found.external_id) == ("old", "0000000001", "ext")
    assert sorted(store.upload_providers("debian", "new")) == ["cloud", "other"]
    assert sorted(str(one.id) for one in store.uploads("debian", "new", "cloud")) == [f"{n:010}" for n in (2, 3, 4)]
    images.put("debian/builds/new/providers/cloud/images/0000000007/lock")
    has_data = [store.upload_has_data("debian", "new", "cloud", f"{number:010}") for number in (6, 7, 8)]
    assert has_data == [True, False, False], "one that a lock has made again has no data"
    store.erase_provider("debian", "new", "cloud")
    assert store.upload_providers("debian", "new") == ["other"]


def test_all_at_once(client: ZooKeeperClient, images: ImageZnodes, caplog: pytest.LogCaptureFixture) -> None:
    """reference/commands 2: images and providers by name, builds and uploads as ZooKeeper lists them.

    With pauses, requests, locks, and records with their version; bad ones are logged.
    """
    for image in ("gentoo", "debian"):
        for build_id in ("zz", "b", "a" * 32, "0000000001"):
            images.add_build(image, build_id, state="building")
            for provider in ("other", "lab"):
                for number in (3, 1, 7, 2):
                    images.add_upload(image, build_id, provider, number)
    view = read_images(client)
    assert list(view.images) == ["debian", "gentoo"]
    for found in view.images.values():
        assert list(found.builds) == images.kazoo.get_children(f"{IMAGES}/{found.name}/builds")
        for known in found.builds.values():
            assert list(known.uploads) == ["lab", "other"]
            for provider, uploads in known.uploads.items():
                path = f"{IMAGES}/{found.name}/builds/{known.id}/providers/{provider}/images"
                assert [upload.id for upload in uploads] == images.kazoo.get_children(path)
    assert not view.images["debian"].build_locked
    images.add_build("debian", "b", state="building")
    for path, data in (("debian/builds/bad", b"\xff"), ("debian/pause", b""), ("debian/request-build", b"")):
        images.put(path, data)
    with images.locked("debian/builds"):
        locked = read_images(client).images["debian"]
    assert (locked.paused, locked.build_locked) == (True, True)
    assert locked.build_requested == images.kazoo.get(f"{IMAGES}/debian/request-build")[1].ctime / 1000
    record = present(locked.builds["b"].record)
    assert (record.state, record.version, locked.builds["bad"].record) == ("building", 1, None)
    assert "builds/bad" in caplog.text
    images.tell(builds={"debian/a": {"step": "install"}})
    assert builder_status(client).build("debian", "a") == BuildStatus("install")


# -- writing


def test_records(store: ImageStore, build: ImageBuild, upload: ImageUpload, znodes: PoolZnodes) -> None:
    """6.1, 6.3: the id is a uuid4 in hex; a new record may be stored before its result.

    The first number of an upload is 1, because the lock has used up 0 (reference/zookeeper 2).
    """
    assert re.fullmatch(r"[0-9a-f]{12}4[0-9a-f]{19}", build.key)
    fields = {"username": None, "python_path": None, "shell_type": None, "state": "ready", "state_time": 1234.5}
    stored = znodes.read(caches.build("debian", build.key))
    assert stored == {**fields, "builder": "builder.example.com", "formats": "qcow2,raw"}
    found = present(store.build("debian", build.key))
    assert (found.version, found.state, store.build("debian", "other")) == (build.version, "ready", None)
    assert caches.upload(*names(upload)) == f"{IMAGES}/debian/builds/{build.key}/providers/cloud/images/0000000001"
    stored = present(znodes.read(caches.upload(*names(upload))))
    assert (stored["state"], stored["external_id"], stored["state_time"]) == ("ready", "image-1", 1234.5)
    assert "rolled_back" not in stored
    assert (read(store, upload).version, store.upload(*names(upload)[:3], "0000000007")) == (upload.version, None)
    upload.rolled_back = True
    store.store_upload(upload)
    stored = present(znodes.read(caches.upload(*names(upload))))
    assert (stored["rolled_back"], stored["state"], stored["state_time"]) == (True, "ready", 1234.5)
    assert read(store, upload).rolled_back


def test_without_a_build_nothing_is_uploaded(store: ImageStore, znodes: PoolZnodes) -> None:
    """Neither a lock nor an upload makes a build that is not there."""
    with pytest.raises(ZKConflict):
        store.new_upload(ImageUpload("debian", "gone", "cloud"))
    for lock in _locks(store, ImageUpload("debian", "gone", "cloud", "0000000001"))[1:]:
        with pytest.raises(ZKConflict), lock:
            pass
    assert znodes.children("/nodepool/images") == []


def test_writes_are_fenced(
    store: ImageStore, second: ImageStore, build: ImageBuild, upload: ImageUpload, znodes: PoolZnodes
) -> None:
    """Who has an old version, or a lock that is lost, writes and removes nothing."""
    found = present(second.build("debian", build.key))
    found.state = "deleting"
    second.store_build(found)
    build.state = upload.state = "failed"
    with pytest.raises(ZKConflict):
        store.store_build(build)
    calls: list[Callable[[ZkLock], object]] = [
        lambda lock: store.store_upload(upload, lock),
        lambda lock: store.new_upload(ImageUpload("debian", build.key, "cloud"), lock),
        lambda lock: store.new_build(ImageBuild("debian"), lock),
        lambda lock: store.delete_upload(*names(upload), under=lock),
        lambda lock: store.delete_build("debian", build.key, lock),
    ]
    for place in (store.upload_lock("debian", build.key, "cloud"), store.upload_id_lock(*names(upload))):
        with place as lock:
            znodes.kazoo.delete(lock.contender)
            for call in calls[:4]:
                with pytest.raises(ZKConflict):
                    call(lock)
    assert store.build_ids("debian") == [build.key]
    assert [found.state for found in store.uploads("debian", build.key, "cloud")] == ["ready"]
    store.delete_upload(*names(upload))
    with store.build_id_lock("debian", build.key) as lock:
        znodes.kazoo.delete(lock.contender)
        with pytest.raises(ZKConflict):
            calls[4](lock)
    assert store.build("debian", build.key) is not None


def _locks(store: ImageStore, upload: ImageUpload) -> list[AbstractContextManager[ZkLock]]:
    return [
        store.build_lock("debian"),
        store.build_id_lock("debian", upload.build_id),
        store.upload_lock("debian", upload.build_id, "cloud"),
        store.upload_id_lock(*names(upload)),
    ]


def test_lock_of_what_was_removed_meanwhile(
    store: ImageStore, build: ImageBuild, znodes: PoolZnodes, client: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kazoo makes the directory of a lock again with all above it."""
    make_lock = client.kazoo.Lock

    def too_late(*arguments: Any) -> Any:
        znodes.kazoo.delete(caches.build("debian", build.key), recursive=True)
        return make_lock(*arguments)

    monkeypatch.setattr(client.kazoo, "Lock", too_late)
    with pytest.raises(ZKConflict), store.upload_lock("debian", build.key, "cloud"):
        pass
    assert store.builds("debian") == []
    assert znodes.children(caches.upload_lock("debian", build.key, "cloud")) == []


@pytest.mark.parametrize("waited_for", [False, True])
def test_removal(store: ImageStore, upload: ImageUpload, znodes: PoolZnodes, waited_for: bool) -> None:
    """Record and lock go in one write, also when others wait; that of a build after its last upload; twice is fine."""
    with store.build_id_lock("debian", upload.build_id) as build_lock:
        assert not store.delete_build("debian", upload.build_id, build_lock)
        with store.upload_id_lock(*names(upload)) as lock:
            if waited_for:
                znodes.kazoo.create(f"{lock.path}/{'f' * 32}__lock__", ephemeral=True, sequence=True)
            store.delete_upload(*names(upload), under=lock)
        store.delete_upload(*names(upload))
        assert znodes.children(caches.uploads(*names(upload)[:3])) == ["lock"]
        assert store.delete_build("debian", upload.build_id, build_lock)
    assert znodes.children(caches.builds("debian")) == ["lock"]
    assert store.delete_build("debian", upload.build_id)


def test_what_cannot_be_read_can_be_removed(store: ImageStore, build: ImageBuild, znodes: PoolZnodes) -> None:
    """R-17: a lock that was taken of what was just removed leaves znodes without data."""
    ids = ("debian", "b1", "cloud", "0000000001")
    znodes.kazoo.ensure_path(caches.upload_id_lock(*ids))
    with store.upload_id_lock(*ids) as lock:
        store.delete_upload(*ids, under=lock)
    with store.build_id_lock("debian", "b1") as lock:
        assert store.replace_bad_build("debian", "b1", lock)
        assert store.delete_build("debian", "b1", lock)
    with store.build_id_lock("debian", build.key) as lock:
        assert not store.replace_bad_build("debian", build.key, lock)
        assert not store.replace_bad_build("debian", "gone", lock)
        znodes.kazoo.set(caches.build("debian", build.key), b"bad")
        assert store.replace_bad_build("debian", build.key, lock)
    assert [(one.id, one.state) for one in store.builds("debian")] == [(build.key, "deleting")]


def test_build_that_stays(
    store: ImageStore, second: ImageStore, build: ImageBuild, client: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever uploads it, or begins to at this moment, keeps it. So does an upload that cannot be read."""
    with second.upload_lock("debian", build.key, "cloud"):
        assert not store.delete_build("debian", build.key)
    path = caches.upload("debian", build.key, "cloud", "0000000005")
    client.kazoo.create(path, b"bad", makepath=True)
    with store.build_id_lock("debian", build.key) as lock:
        for under in (lock, None):
            assert not store.delete_build("debian", build.key, under)
    client.kazoo.delete(path)
    commit = Transaction.commit

    def too_late(tx: Transaction) -> object:
        monkeypatch.undo()
        second.new_upload(ImageUpload("debian", build.key, "cloud"))
        return commit(tx)

    monkeypatch.setattr(Transaction, "commit", too_late)
    assert not store.delete_build("debian", build.key)
    assert store.build_ids("debian") == [build.key]


def test_requests_and_pauses(store: ImageStore) -> None:
    """6.3: a request is pending unless somebody holds the lock and a build is under way."""

    def pending() -> bool | None:
        request = store.build_request("debian")
        assert request is None or request.state_time > 1e9
        return None if request is None else request.pending

    assert pending() is None
    for _ in range(2):
        store.request_build("debian")
    assert pending() is True
    with store.build_lock("debian") as lock:
        assert pending() is True
        store.new_build(ImageBuild("debian"), lock)
        assert pending() is False
    for _ in range(2):
        store.remove_build_request("debian")
    assert pending() is None
    for paused in (True, True, False, False):
        store.set_paused("debian", paused)
        assert store.paused("debian") is paused


def test_roll_back(
    store: ImageStore,
    upload: ImageUpload,
    monkeypatch: pytest.MonkeyPatch,
    images: ImageZnodes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R-18: both records in one write: launchers, also released ones, take the one with the new time."""
    images.add_build("fedora", "bad", state="odd")
    newer = ImageUpload("debian", upload.build_id, "cloud")
    newer.state = "ready"
    at(monkeypatch, 2000.0)
    store.new_upload(newer)
    current = present(store.most_recent_upload("debian", "cloud"))
    assert current.id == newer.id
    at(monkeypatch, 3000.0)
    store.roll_back(upload, newer)
    current = present(store.most_recent_upload("debian", "cloud"))
    assert (current.id, current.state_time, current.rolled_back) == (upload.id, 3000.0, False)
    marked = read(store, newer)
    assert (marked.state_time, marked.rolled_back) == (2000.0, True)
    assert "Ignoring" not in caplog.text, "other images are not read"


def test_lost_answers(store: ImageStore, upload: ImageUpload, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is looked up: it was written once, and the next write knows the version.

    Only a new upload does not make a second record: the first is found abandoned.
    """
    commit = Transaction.commit
    lost: list[Transaction] = []

    def lose_first(tx: Transaction) -> object:
        versions = [(record, record.version) for record in (upload, fresh)]
        result = commit(tx)
        if not lost:
            lost.append(tx)
            for record, version in versions:
                record.version = version
            raise ZKConnectionError("the answer was lost")
        return result

    fresh = ImageBuild("debian")
    monkeypatch.setattr(Transaction, "commit", lose_first)
    upload.external_name = "a name"
    for _ in range(2):
        store.store_upload(upload)
    assert upload.version == 3
    lost.clear()
    assert store.new_build(fresh) in store.build_ids("debian")
    store.store_build(fresh)
    lost.clear()
    assert store.delete_build("debian", fresh.key)
    lost.clear()
    with store.upload_id_lock(*names(upload)) as lock:
        store.delete_upload(*names(upload), under=lock)
    assert store.upload(*names(upload)) is None
    lost.clear()
    with pytest.raises(ZKConnectionError):
        store.new_upload(ImageUpload("debian", upload.build_id, "cloud"))
    assert len(store.uploads("debian", upload.build_id, "cloud")) == 1


# -- the cache


def until(cache: ImageCache, wanted: Callable[[ImageView], Any]) -> ImageView:
    """The view of ``debian`` when it is as wanted."""
    wait_for("the view is as wanted", lambda: wanted(cache.snapshot().image("debian")))
    return cache.snapshot().image("debian")


@pytest.fixture
def watched(client: ZooKeeperClient) -> ImageCache:
    made = ImageCache(client)
    assert made.wait_ready(30)
    return made


def test_life_of_a_build_in_the_cache(
    images: ImageZnodes, watched: ImageCache, caplog: pytest.LogCaptureFixture
) -> None:
    """Each change is in the view by itself. A bad record hides no other, and is there. A listener that fails does not
    keep others from it, and one that was removed hears nothing.
    """
    kazoo, told, removed = images.kazoo, list[str](), list[str]()

    def fail(image: str) -> None:
        raise ValueError(image)

    for listener in (fail, told.append, removed.append):
        watched.add_listener(listener)
    watched.remove_listener(removed.append)
    images.put("debian/request-build")
    until(watched, lambda view: view.build_requested)
    lock = kazoo.create(f"{caches.build_lock('debian')}/x__lock__", ephemeral=True, sequence=True, makepath=True)
    until(watched, lambda view: view.build_locked)
    images.put("debian/builds/bad", b"[]")
    path = images.add_build("debian", "b1", state="building")
    view = until(watched, lambda view: view.builds_in("building"))
    assert (sorted(view.builds), view.builds["bad"].record) == (["b1", "bad"], None)
    images.add_build("debian", "b1")
    kazoo.delete(lock)
    view = until(watched, lambda view: not view.build_locked)
    assert view.builds["b1"].state == "ready", "a free lock beside the record that its holder has overwritten"
    images.add_upload("debian", "b1", "cloud", 1)
    until(watched, lambda view: view.current_upload("cloud"))
    kazoo.delete(caches.upload("debian", "b1", "cloud", "0000000001"))
    until(watched, lambda view: view.current_upload("cloud") is None)
    for doomed in (path, f"{IMAGES}/debian/builds/bad"):
        kazoo.delete(doomed, recursive=True)
    until(watched, lambda view: not view.builds)
    kazoo.delete(caches.image("debian"), recursive=True)
    until(watched, lambda view: "debian" not in watched.snapshot().images)
    assert (set(told), removed) == ({"debian"}, [])
    assert "Error in a listener of /nodepool/images" in caplog.text


# -- import (6.4)


@pytest.mark.parametrize("highest", [0, 1, 499, 500, 1203])
def test_later_uploads_get_higher_numbers(client: ZooKeeperClient, images: ImageZnodes, highest: int) -> None:
    """Exactly the next one where nothing was there; nothing of the way is left."""
    data = {BUILD: RECORD, f"{UPLOADS}/{highest:010}": RECORD}
    import_images(client, data)
    assert export_images(client) == data
    # The imported one has used up a number itself.
    assert images.kazoo.create(f"{UPLOADS}/", sequence=True) == f"{UPLOADS}/{highest + 2:010}"


def test_numbers_that_are_used_up_already(client: ZooKeeperClient, images: ImageZnodes) -> None:
    images.put("debian/builds/b1", RECORD.encode())
    images.kazoo.ensure_path(UPLOADS)
    for _ in range(5):
        images.kazoo.delete(images.kazoo.create(f"{UPLOADS}/", sequence=True))
    import_images(client, {BUILD: RECORD, f"{UPLOADS}/0000000002": RECORD})
    assert images.kazoo.create(f"{UPLOADS}/", sequence=True) == f"{UPLOADS}/0000000006"


@pytest.mark.parametrize("before", [None, b'{"state": "failed"}'])
@pytest.mark.parametrize("meanwhile", [b'{"state": "building"}', RECORD.encode()])
def test_import_while_another_process_writes(
    client: ZooKeeperClient,
    images: ImageZnodes,
    monkeypatch: pytest.MonkeyPatch,
    before: bytes | None,
    meanwhile: bytes,
) -> None:
    """What another process has just written is not overwritten; the same as in the export is fine."""
    if before is not None:
        images.put("debian/builds/b1", before)
    plain = transactions.read_data

    def read_and_be_late(reader: ZooKeeperClient, paths: Any) -> Iterator[Any]:
        found = list(plain(reader, paths))
        monkeypatch.undo()
        images.put("debian/builds/b1", meanwhile)
        return iter(found)

    monkeypatch.setattr(transactions, "read_data", read_and_be_late)
    if meanwhile == RECORD.encode():
        import_images(client, {BUILD: RECORD}, replace=True)
    else:
        with pytest.raises(ZKConflict, match="changed meanwhile"):
            import_images(client, {BUILD: RECORD}, replace=True)
    assert images.kazoo.get(BUILD)[0] == meanwhile
