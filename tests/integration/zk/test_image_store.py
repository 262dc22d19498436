# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.images: writes and locks of builds and uploads (reference/zookeeper 6.3)."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.zk import caches
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.images import ImageStore
from nodepool.zk.locks import ZkLock
from nodepool.zk.transactions import Transaction
from tests.support.pool_znodes import PoolZnodes

UPLOAD_PATH = re.compile(r"/nodepool/images/debian/builds/\w{32}/providers/cloud/images/0000000001")


@pytest.fixture
def store(client: ZooKeeperClient) -> ImageStore:
    return ImageStore(client, clock=lambda: 1234.5)


@pytest.fixture
def second(other: ZooKeeperClient) -> ImageStore:
    """Of another builder."""
    return ImageStore(other, clock=lambda: 2345.5)


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


def test_build(store: ImageStore, build: ImageBuild, znodes: PoolZnodes) -> None:
    """6.1, 6.3: the id is a uuid4 in hex; a new record may be stored before its result."""
    assert re.fullmatch(r"[0-9a-f]{12}4[0-9a-f]{19}", build.key)
    assert znodes.read(caches.build("debian", build.key)) == {
        "state": "ready",
        "state_time": 1234.5,
        "builder": "builder.example.com",
        "formats": "qcow2,raw",
        "username": None,
        "python_path": None,
        "shell_type": None,
    }
    found = store.build("debian", build.key)
    assert found is not None
    assert (found.version, found.state) == (build.version, "ready")
    assert store.build("debian", "other") is None


def test_upload(store: ImageStore, upload: ImageUpload, znodes: PoolZnodes) -> None:
    """The first number is 1, because the lock has used up 0 (reference/zookeeper 2)."""
    path = caches.upload("debian", upload.build_id, "cloud", upload.key)
    assert UPLOAD_PATH.fullmatch(path)
    stored = znodes.read(path)
    assert stored is not None
    assert (stored["state"], stored["external_id"], stored["state_time"]) == ("ready", "image-1", 1234.5)
    assert "rolled_back" not in stored
    found = store.upload("debian", upload.build_id, "cloud", upload.key)
    assert found is not None
    assert found.version == upload.version
    assert store.upload("debian", upload.build_id, "cloud", "0000000007") is None


def test_without_a_build_nothing_is_uploaded(store: ImageStore, znodes: PoolZnodes) -> None:
    """Neither a lock nor an upload makes a build that is not there."""
    with pytest.raises(ZKConflict):
        store.new_upload(ImageUpload("debian", "gone", "cloud"))
    with pytest.raises(ZKConflict), store.upload_lock("debian", "gone", "cloud"):
        pass
    with pytest.raises(ZKConflict), store.build_id_lock("debian", "gone"):
        pass
    with pytest.raises(ZKConflict), store.upload_id_lock("debian", "gone", "cloud", "0000000001"):
        pass
    assert znodes.children("/nodepool/images") == []


def test_writes_are_fenced(
    store: ImageStore, second: ImageStore, build: ImageBuild, upload: ImageUpload, znodes: PoolZnodes
) -> None:
    """Who has an old version, or a lock that is lost, writes nothing."""
    read = second.build("debian", build.key)
    assert read is not None
    read.state = "deleting"
    second.store_build(read)
    build.state = "failed"
    with pytest.raises(ZKConflict):
        store.store_build(build)
    with store.upload_lock("debian", build.key, "cloud") as lock:
        znodes.kazoo.delete(lock.contender)
        upload.state = "failed"
        with pytest.raises(ZKConflict):
            store.store_upload(upload, lock)
        with pytest.raises(ZKConflict):
            store.new_upload(ImageUpload("debian", build.key, "cloud"), lock)
        with pytest.raises(ZKConflict):
            store.new_build(ImageBuild("debian"), lock)
    assert store.build_ids("debian") == [build.key]
    assert [found.state for found in store.uploads("debian", build.key, "cloud")] == ["ready"]


def _locks(store: ImageStore, upload: ImageUpload) -> list[AbstractContextManager[ZkLock]]:
    build = upload.build_id
    return [
        store.build_lock("debian"),
        store.build_id_lock("debian", build),
        store.upload_lock("debian", build, "cloud"),
        store.upload_id_lock("debian", build, "cloud", upload.key),
    ]


@pytest.mark.parametrize("number", range(4))
def test_locks(store: ImageStore, second: ImageStore, upload: ImageUpload, number: int) -> None:
    """One at a time; who does not get it does not wait."""
    with _locks(store, upload)[number] as lock:
        assert re.fullmatch(r"[0-9a-f]{32}__lock__\d{10}", lock.contender.rpartition("/")[2])
        with pytest.raises(ZKLockException), _locks(second, upload)[number]:
            pass
    with _locks(second, upload)[number]:
        pass


def test_lock_of_what_was_removed_meanwhile(
    store: ImageStore, build: ImageBuild, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kazoo makes the directory of a lock again with all above it."""
    make = store._make_below

    def slowly(record: str, directory: str) -> None:
        make(record, directory)
        znodes.kazoo.delete(record, recursive=True)

    monkeypatch.setattr(store, "_make_below", slowly)
    with pytest.raises(ZKConflict), store.upload_lock("debian", build.key, "cloud"):
        pass
    assert store.builds("debian") == []
    assert znodes.children(caches.upload_lock("debian", build.key, "cloud")) == []


def test_what_has_no_data_can_be_removed(store: ImageStore, znodes: PoolZnodes) -> None:
    """R-17: a lock that was taken of what was just removed leaves such znodes."""
    names = ("debian", "b1", "cloud", "0000000001")
    znodes.kazoo.ensure_path(caches.upload_id_lock(*names))
    with store.upload_id_lock(*names) as lock:
        store.delete_upload(*names, under=lock)
    with store.build_id_lock("debian", "b1") as lock:
        assert store.replace_bad_build("debian", "b1", lock)
        assert store.delete_build("debian", "b1", lock)
    assert store.build_ids("debian") == []


def test_delete_upload(store: ImageStore, upload: ImageUpload, znodes: PoolZnodes) -> None:
    """Record and lock go in one write; twice is fine."""
    names = ("debian", upload.build_id, "cloud", upload.key)
    with store.upload_id_lock(*names) as lock:
        store.delete_upload(*names, under=lock)
    store.delete_upload(*names)
    assert znodes.children(caches.uploads("debian", upload.build_id, "cloud")) == ["lock"]


def test_delete_upload_under_a_lost_lock(store: ImageStore, upload: ImageUpload, znodes: PoolZnodes) -> None:
    names = ("debian", upload.build_id, "cloud", upload.key)
    with store.upload_id_lock(*names) as lock:
        znodes.kazoo.delete(lock.contender)
        with pytest.raises(ZKConflict):
            store.delete_upload(*names, under=lock)
    assert store.upload(*names) is not None


def test_delete_upload_that_others_wait_for(store: ImageStore, upload: ImageUpload, znodes: PoolZnodes) -> None:
    names = ("debian", upload.build_id, "cloud", upload.key)
    with store.upload_id_lock(*names) as lock:
        znodes.kazoo.create(f"{lock.path}/{'f' * 32}__lock__", ephemeral=True, sequence=True)
        store.delete_upload(*names, under=lock)
    assert store.upload(*names) is None


def test_delete_build(store: ImageStore, upload: ImageUpload, znodes: PoolZnodes) -> None:
    """The record goes after the last upload, with the lock that its remover holds."""
    build = upload.build_id
    with store.build_id_lock("debian", build) as lock:
        assert not store.delete_build("debian", build, lock)
        store.delete_upload("debian", build, "cloud", upload.key)
        assert store.delete_build("debian", build, lock)
    assert znodes.children(caches.builds("debian")) == ["lock"]
    assert store.delete_build("debian", build), "one that is gone is fine"


@pytest.mark.parametrize("under", [True, False])
def test_build_with_a_bad_upload_stays(store: ImageStore, build: ImageBuild, znodes: PoolZnodes, under: bool) -> None:
    """Nobody knows which image would be forgotten."""
    znodes.kazoo.create(caches.upload("debian", build.key, "cloud", "0000000005"), b"bad", makepath=True)
    with store.build_id_lock("debian", build.key) as lock:
        assert not store.delete_build("debian", build.key, lock if under else None)
    assert store.build_ids("debian") == [build.key]


def test_build_that_is_being_uploaded_stays(
    store: ImageStore, second: ImageStore, build: ImageBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever begins an upload at this moment keeps the build."""
    with second.upload_lock("debian", build.key, "cloud"):
        assert not store.delete_build("debian", build.key)
    subtree = store._subtree

    def then_upload(root: str) -> object:
        found = subtree(root)
        second.new_upload(ImageUpload("debian", build.key, "cloud"))
        return found

    monkeypatch.setattr(store, "_subtree", then_upload)
    assert not store.delete_build("debian", build.key)
    assert store.build("debian", build.key) is not None


def test_delete_build_under_a_lost_lock(store: ImageStore, build: ImageBuild, znodes: PoolZnodes) -> None:
    with store.build_id_lock("debian", build.key) as lock:
        znodes.kazoo.delete(lock.contender)
        with pytest.raises(ZKConflict):
            store.delete_build("debian", build.key, lock)
    assert store.build("debian", build.key) is not None


def test_requests_and_pauses(store: ImageStore) -> None:
    """6.3: a request is pending unless somebody holds the lock and a build is under way."""
    assert store.build_request("debian") is None
    for _ in range(2):
        store.request_build("debian")
    request = store.build_request("debian")
    assert request is not None
    assert request.pending
    assert request.state_time > 1e9
    with store.build_lock("debian") as lock:
        asked = store.build_request("debian")
        assert asked is not None
        assert asked.pending
        store.new_build(ImageBuild("debian"), lock)
        asked = store.build_request("debian")
        assert asked is not None
        assert not asked.pending
    for _ in range(2):
        store.remove_build_request("debian")
    assert store.build_request("debian") is None
    for paused in (True, True, False, False):
        store.set_paused("debian", paused)
        assert store.paused("debian") is paused


def test_rolled_back(store: ImageStore, upload: ImageUpload, znodes: PoolZnodes) -> None:
    """The mark changes neither state nor time."""
    upload.rolled_back = True
    store.store_upload(upload)
    path = caches.upload("debian", upload.build_id, "cloud", upload.key)
    stored = znodes.read(path)
    assert stored is not None
    assert (stored["rolled_back"], stored["state"], stored["state_time"]) == (True, "ready", 1234.5)
    found = store.upload("debian", upload.build_id, "cloud", upload.key)
    assert found is not None
    assert found.rolled_back


def test_roll_back(store: ImageStore, upload: ImageUpload, client: ZooKeeperClient) -> None:
    """R-18: both records in one write: launchers, also released ones, take the one with the new time."""
    newer = ImageUpload("debian", upload.build_id, "cloud")
    later = ImageStore(client, clock=lambda: 2000.0)
    newer.state = "ready"
    later.new_upload(newer)
    current = store.most_recent_upload("debian", "cloud")
    assert current is not None
    assert current.id == newer.id
    ImageStore(client, clock=lambda: 3000.0).roll_back(upload, newer)
    found = store.most_recent_upload("debian", "cloud")
    assert found is not None
    assert (found.id, found.state_time, found.rolled_back) == (upload.id, 3000.0, False)
    marked = store.upload("debian", upload.build_id, "cloud", newer.key)
    assert marked is not None
    assert (marked.state_time, marked.rolled_back) == (2000.0, True)


def test_replace_bad_build(store: ImageStore, build: ImageBuild, znodes: PoolZnodes) -> None:
    """A record that nobody can read becomes one of a build that is to go."""
    with store.build_id_lock("debian", build.key) as lock:
        assert not store.replace_bad_build("debian", build.key, lock)
        assert not store.replace_bad_build("debian", "gone", lock)
        znodes.kazoo.set(caches.build("debian", build.key), b"bad")
        assert store.replace_bad_build("debian", build.key, lock)
    found = store.build("debian", build.key)
    assert found is not None
    assert found.state == "deleting"


def test_upload_is_stored_once(store: ImageStore, build: ImageBuild, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is lost does not make a second record: the first is found abandoned."""
    commit = Transaction.commit

    def lose(tx: Transaction) -> None:
        commit(tx)
        raise ZKConnectionError("the answer was lost")

    monkeypatch.setattr(Transaction, "commit", lose)
    with pytest.raises(ZKConnectionError):
        store.new_upload(ImageUpload("debian", build.key, "cloud"))
    assert len(store.uploads("debian", build.key, "cloud")) == 1


def test_lost_answers_that_are_resolved(
    store: ImageStore, upload: ImageUpload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything else is looked up: it was written once, and the next write knows the version."""
    commit = Transaction.commit
    lost: list[Transaction] = []

    def lose_first(tx: Transaction) -> object:
        result = commit(tx)
        if not lost:
            lost.append(tx)
            for record in tx._written.values():
                assert record.version is not None
                record.version -= 1
            raise ZKConnectionError("the answer was lost")
        return result

    monkeypatch.setattr(Transaction, "commit", lose_first)
    upload.external_name = "a name"
    for _ in range(2):
        store.store_upload(upload)
    assert upload.version == 3
    lost.clear()
    fresh = ImageBuild("debian")
    assert store.new_build(fresh) in store.build_ids("debian")
    store.store_build(fresh)
    lost.clear()
    assert store.delete_build("debian", fresh.key)
    lost.clear()
    names = ("debian", upload.build_id, "cloud", upload.key)
    with store.upload_id_lock(*names) as lock:
        store.delete_upload(*names, under=lock)
    assert store.upload(*names) is None
