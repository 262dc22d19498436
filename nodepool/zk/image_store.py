# SPDX-License-Identifier: Apache-2.0
"""Image builds and uploads in ZooKeeper: reads, writes and locks (reference/zookeeper 6)."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

from kazoo.exceptions import NodeExistsError, NoNodeError

from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.model import states
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.zk import codec, image_paths, locks, multi_read
from nodepool.zk.image_reader import ImageReader
from nodepool.zk.locks import ZkLock
from nodepool.zk.transactions import Transaction, TransactionFailed, ensure_path, sync, translated, was_written


class ImageStore(ImageReader):
    """Every method blocks for round trips.

    Errors: `ZKConflict` (nothing was written), `ZKConnectionError` (the outcome is unknown). Where a write takes a
    lock as ``under``, it happens only while that lock is held; a `ZKConflict` if it is lost. Records are written with
    the version that they were read or written with.
    """

    # -- builds --

    def new_build(self, build: ImageBuild, under: ZkLock | None = None) -> str:
        """Store a build that has no id yet, under the lock of its image; sets and returns its id."""
        build_id = uuid.uuid4().hex
        path = image_paths.build(build.image_name, build_id)
        data = codec.encode(build.to_dict(self._clock()))
        ensure_path(self._client, image_paths.builds(build.image_name))
        tx = self._transaction(under)
        tx.create(path, data)
        tx.commit_unless(lambda: self._is_there(path))
        build.id, build.version = build_id, 0
        return build_id

    def store_build(self, build: ImageBuild, under: ZkLock | None = None) -> None:
        """Overwrite a build."""
        self._save(image_paths.build(build.image_name, build.key), build, under)

    def replace_bad_build(self, image: str, build_id: str, under: ZkLock) -> bool:
        """Make a build `deleting` whose data are no record, under its lock. False = it is a record, or gone.

        :raises ZKConflict: somebody else wrote it meanwhile.
        """
        path = image_paths.build(image, build_id)
        stat = self._stat(path)
        if stat is None or self.build(image, build_id) is not None:
            return False
        build = ImageBuild(image, build_id)
        build.state, build.version = states.DELETING, stat.version
        self._save(path, build, under)
        return True

    def delete_build(self, image: str, build_id: str, under: ZkLock | None = None) -> bool:
        """Remove a build with all its empty directories, in one write.

        :param under: the lock of this build; it goes with it.
        :return: False = nothing was removed, because there are uploads, readable or not, or somebody else has locked
            something below. True also if the build is gone.
        """
        root = image_paths.build(image, build_id)
        tx = Transaction(self._client)
        if under is not None:
            tx.delete(under.contender)
        for path, kind in reversed(self._subtree(root)):
            if under is not None and path == under.contender:
                continue
            if kind in (image_paths.Kind.UPLOAD, image_paths.Kind.CONTENDER):
                return False
            tx.delete(path)
        try:
            tx.commit_unless(lambda: not self._is_there(root))
        except TransactionFailed:
            if under is not None and not self._is_there(under.contender) and self._is_there(root):
                raise
            return not self._is_there(root)
        return True

    # -- uploads --

    def new_upload(self, upload: ImageUpload, under: ZkLock | None = None) -> str:
        """Store an upload that has no number yet, under the lock of its build and provider; sets and returns its id.

        A lost answer is not resolved: whoever finds the record with a free lock takes it for abandoned.

        :raises ZKConflict: there is no such build.
        """
        image, build_id, provider = upload.image_name, upload.build_id, upload.provider_name
        build_path = image_paths.build(image, build_id)
        # The directory of the lock uses up the first number, as in released builders.
        self._make_below(build_path, image_paths.upload_lock(image, build_id, provider))
        tx = self._transaction(under)
        tx.check(build_path)
        data = codec.encode(upload.to_dict(self._clock()))
        tx.create_record(f"{image_paths.uploads(image, build_id, provider)}/", upload, data)
        tx.commit()
        return upload.key

    def store_upload(self, upload: ImageUpload, under: ZkLock | None = None) -> None:
        """Overwrite an upload."""
        image, build_id, provider = upload.image_name, upload.build_id, upload.provider_name
        self._save(image_paths.upload(image, build_id, provider, upload.key), upload, under)

    def roll_back(self, to: ImageUpload, current: ImageUpload) -> None:
        """Store an upload of a provider again, so that it is the current one, and mark the one that was, in one write.

        The older one gets a new time; the newer one keeps its own.
        """
        to.state = states.READY
        to.rolled_back, current.rolled_back = False, True
        tx = Transaction(self._client)
        for upload in (to, current):
            path = image_paths.upload(upload.image_name, upload.build_id, upload.provider_name, upload.key)
            tx.set_record(path, upload, codec.encode(upload.to_dict(self._clock())))
        tx.commit()

    def delete_upload(
        self, image: str, build_id: str, provider: str, upload_id: str, under: ZkLock | None = None
    ) -> None:
        """Remove the record of an upload; one that is gone is fine. The cloud is not touched.

        :param under: the lock of this number; it goes with the record.
        """
        path = image_paths.upload(image, build_id, provider, upload_id)
        if under is not None:
            tx = Transaction(self._client)
            for doomed in (under.contender, under.path, path):
                tx.delete(doomed)
            try:
                tx.commit_unless(lambda: not self._is_there(path))
                return
            except TransactionFailed as failure:
                # Others wait for the lock of what has to go; they find nothing.
                if isinstance(failure.error, NoNodeError):
                    if self._is_there(path):
                        raise
                    return
        self._remove(path)

    def erase_provider(self, image: str, build_id: str, provider: str) -> None:
        """Remove the records of a provider's uploads of one build; the cloud is not touched."""
        self._remove(image_paths.provider(image, build_id, provider))

    # -- requests and pauses --

    def request_build(self, image: str) -> None:
        """Ask for a build; asking twice makes one. To write a request again ends a back-off (B-13)."""
        path, kazoo = image_paths.build_request(image), self._client.kazoo
        with translated(), contextlib.suppress(NoNodeError):
            kazoo.retry(kazoo.set, path, b"")
            return
        ensure_path(self._client, path)

    def remove_build_request(self, image: str) -> None:
        """Nobody asks for a build any more."""
        self._remove(image_paths.build_request(image))

    def set_paused(self, image: str, paused: bool) -> None:
        """Pause builds of an image, or go on with them."""
        if paused:
            ensure_path(self._client, image_paths.pause(image))
        else:
            self._remove(image_paths.pause(image))

    # -- locks --

    def build_lock(
        self, image: str, *, blocking: bool = False, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one builds an image at a time.

        :param timeout: seconds to wait at most when ``blocking``; None = for ever.
        :raises ZKLockException: somebody else does.
        """
        return self._locked(image_paths.IMAGES, image_paths.build_lock(image), blocking, timeout)

    def build_id_lock(
        self, image: str, build_id: str, *, blocking: bool = False, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one marks or removes a build at a time. Raises ZKLockException, and ZKConflict: there is no build.

        One without data can be locked, because it is to be removed, too.
        """
        record = image_paths.build(image, build_id)
        return self._locked(record, image_paths.build_id_lock(image, build_id), blocking, timeout)

    def upload_lock(
        self, image: str, build_id: str, provider: str, *, blocking: bool = False, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one uploads a build to a provider. Raises ZKLockException, and ZKConflict: there is no build."""
        record = image_paths.build(image, build_id)
        lock_dir = image_paths.upload_lock(image, build_id, provider)
        return self._locked(record, lock_dir, blocking, timeout, needs_data=True)

    def upload_id_lock(
        self,
        image: str,
        build_id: str,
        provider: str,
        upload_id: str,
        *,
        blocking: bool = False,
        timeout: float | None = None,
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one deletes an upload at a time. Raises ZKLockException, and ZKConflict: there is no upload.

        One without data can be locked, because it is to be removed, too.
        """
        record = image_paths.upload(image, build_id, provider, upload_id)
        return self._locked(record, image_paths.upload_id_lock(image, build_id, provider, upload_id), blocking, timeout)

    def is_lost(self, lock: ZkLock) -> bool:
        """Has the session ended in which a lock was taken? Then somebody else may have it. Does not block."""
        return lock.epoch != self._client.session_epoch

    def is_certain(self, lock: ZkLock) -> bool:
        """Does the session live beyond doubt in which a lock was taken, so that nobody else has it? Does not block.

        False for a while does not mean that it is lost: without a connection nobody knows.
        """
        return self._client.session_is_certain(lock.epoch)

    @contextlib.contextmanager
    def _locked(
        self, record: str, lock_dir: str, blocking: bool, timeout: float | None, *, needs_data: bool = False
    ) -> Iterator[ZkLock]:
        """:param record: path of what must be there; Kazoo alone would make it, without data."""
        if record != image_paths.IMAGES:
            self._make_below(record, lock_dir)
        lock = locks.acquire(self._client, lock_dir, blocking=blocking, timeout=timeout)
        try:
            if needs_data:
                self._check_data(record)
            yield lock
        finally:
            locks.release(self._client, lock)

    def _check_data(self, record: str) -> None:
        """A record may have been removed while its lock was being taken; then Kazoo has made it again, without data."""
        stat = self._stat(record)
        if stat is None or not stat.dataLength:
            raise ZKConflict(f"{record} is gone")

    # -- znodes --

    def _transaction(self, under: ZkLock | None) -> Transaction:
        tx = Transaction(self._client)
        if under is not None:
            tx.check(under.contender)
        return tx

    def _save(self, path: str, record: ImageBuild | ImageUpload, under: ZkLock | None) -> None:
        while True:
            data = codec.encode(record.to_dict(self._clock()))
            tx = self._transaction(under)
            tx.set_record(path, record, data)
            try:
                tx.commit()
                return
            except ZKConnectionError:
                if was_written(self._client, path, record, data):
                    return

    def _make_below(self, record: str, directory: str) -> None:
        """Make the directories between a record that is there and one that is below it. Raises ZKConflict."""
        if self._stat(directory) is not None:
            return
        kazoo = self._client.kazoo
        made = record
        for name in directory[len(record) + 1 :].split("/"):
            made = f"{made}/{name}"
            with translated():
                try:
                    kazoo.retry(kazoo.create, made)
                except NodeExistsError:
                    continue
                except NoNodeError:
                    raise ZKConflict(f"{record} is gone") from None

    def _is_there(self, path: str) -> bool:
        """Is it there, when all that was written before has arrived?"""
        sync(self._client, path)
        return self._stat(path) is not None

    def _subtree(self, root: str) -> list[tuple[str, image_paths.Kind]]:
        """A znode and all below it, parents first; nothing if it is not there."""
        found: list[tuple[str, image_paths.Kind]] = []
        level = [root]
        while level:
            below = []
            for path, names in zip(level, multi_read.read_children(self._client, level), strict=True):
                if names is not None:
                    found.append((path, image_paths.kind(image_paths.parts(path))))
                    below += [f"{path}/{name}" for name in names]
            level = below
        return found

    def _remove(self, path: str) -> None:
        """Delete a znode with all below; one that is gone is fine."""
        kazoo = self._client.kazoo
        with translated(), contextlib.suppress(NoNodeError):
            kazoo.retry(kazoo.delete, path, recursive=True)
