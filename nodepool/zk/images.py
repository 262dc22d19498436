# SPDX-License-Identifier: Apache-2.0
"""Image builds and uploads in ZooKeeper (reference/zookeeper 6): first reads, then writes and locks, then listings.

Last all of them as one object of JSON, and back.
"""

from __future__ import annotations

import contextlib
import logging
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from nodepool import log_names
from nodepool.clock import wall_time
from nodepool.exceptions import ZKConflict, ZKException
from nodepool.model import states
from nodepool.model.image import ImageBuild, ImageBuildRequest, ImageSource, ImagesView, ImageUpload
from nodepool.model.record import InvalidRecord
from nodepool.zk import caches, components, paths, transactions
from nodepool.zk.caches import ImageTree, Kind, read_record, record_of
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import Transaction, TransactionFailed, ZkLock, ensure_path, sync, translated, was_written


class ImageStore:
    """Every method blocks for round trips, some of them.

    Errors: `ZKConflict` (nothing was written), `ZKConnectionError` (the outcome is unknown, or there is no connection).
    Where a write takes a lock as ``under``, it happens only while that lock is held; a `ZKConflict` if it is lost.
    Records are written with the version that they were read or written with.
    """

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        #: Path -> why it is no record, as it was logged: it may stay for long.
        self._told: dict[str, str] = {}

    def image_names(self) -> list[str]:
        """Names of images that were built, asked for or paused."""
        return self._children(caches.IMAGES)

    # -- builds: reads --

    def build_ids(self, image: str) -> list[str]:
        """Ids of all builds, readable or not."""
        return self._children(caches.builds(image))

    def builds(self, image: str) -> list[ImageBuild]:
        """All builds of an image; bad records are logged and skipped."""
        found = self._records(caches.build(image, build_id) for build_id in self.build_ids(image))
        return [record for record in found if isinstance(record, ImageBuild)]

    def build(self, image: str, build_id: str) -> ImageBuild | None:
        """One build; None = there is none, or a bad record (logged)."""
        found = next(self._records([caches.build(image, build_id)]), None)
        return found if isinstance(found, ImageBuild) else None

    # -- uploads: reads --

    def upload_providers(self, image: str, build_id: str) -> list[str]:
        """Providers for which a build has or had uploads."""
        return self._children(caches.providers(image, build_id))

    def upload_ids_of(self, image: str, build_id: str, provider: str) -> list[str]:
        """Ids of the uploads of one build to one provider, readable or not."""
        return self._children(caches.uploads(image, build_id, provider))

    def upload_ids(self, provider: str) -> set[tuple[str, str]]:
        """Build id and upload id of all uploads to a provider, readable or not."""
        return {
            (build_id, upload_id)
            for image in self.image_names()
            for build_id in self.build_ids(image)
            for upload_id in self.upload_ids_of(image, build_id, provider)
        }

    def uploads(self, image: str, build_id: str, provider: str) -> list[ImageUpload]:
        """Uploads of one build to one provider; bad records are logged and skipped."""
        ids = self.upload_ids_of(image, build_id, provider)
        found = self._records(caches.upload(image, build_id, provider, upload_id) for upload_id in ids)
        return [record for record in found if isinstance(record, ImageUpload)]

    def upload(self, image: str, build_id: str, provider: str, upload_id: str) -> ImageUpload | None:
        """One upload; None = there is none, or a bad record (logged)."""
        found = next(self._records([caches.upload(image, build_id, provider, upload_id)]), None)
        return found if isinstance(found, ImageUpload) else None

    def upload_has_data(self, image: str, build_id: str, provider: str, upload_id: str) -> bool:
        """Is an upload there, with data, readable or not? Without, it was removed while its lock was being taken."""
        stat = self._stat(caches.upload(image, build_id, provider, upload_id))
        return stat is not None and stat.dataLength > 0

    def most_recent_upload(self, image: str, provider: str) -> ImageUpload | None:
        """The ready upload with the greatest state time, over all builds (reference/zookeeper 6.2), no candidate."""
        ready = [
            upload
            for build_id in self.build_ids(image)
            for upload in self.uploads(image, build_id, provider)
            if upload.state == states.READY
        ]
        return max(ready, key=lambda upload: (upload.candidate is None, upload.state_time or 0), default=None)

    # -- requests and pauses: reads --

    def paused(self, image: str) -> bool:
        """Are builds of an image paused in ZooKeeper?"""
        return self._stat(caches.pause(image)) is not None

    def build_request(self, image: str) -> ImageBuildRequest | None:
        """Who asked for a build, and is it still to be begun (6.3)? None = nobody asked."""
        found = next(transactions.read_data(self._client, [caches.build_request(image)]))
        if found is None:
            return None
        data, stat = found
        source = None
        with contextlib.suppress(InvalidRecord):
            # The cache of images has logged it.
            source = caches.requested_source(data)
        locked = bool(transactions.children(self._client, caches.build_lock(image)))
        served = locked and any(build.state == states.BUILDING for build in self.builds(image))
        return ImageBuildRequest(image, not served, stat.ctime / 1000, source, stat.version)

    # -- znodes --

    def _children(self, path: str) -> list[str]:
        return [name for name in transactions.children(self._client, path) if name != paths.LOCK]

    def _stat(self, path: str) -> Any:
        """Kazoo's; None = there is no such znode."""
        return transactions.stat_of(self._client, path)

    def _records(self, wanted: Iterator[str] | list[str]) -> Iterator[ImageBuild | ImageUpload]:
        """The readable ones of these, many read in a packet."""
        names = list(wanted)
        for path, found in zip(names, transactions.read_data(self._client, names), strict=True):
            told = self._told.pop(path, None)
            if found is None:
                continue
            try:
                yield read_record(path, *found)
            except paths.EmptyRecord:
                self.log.debug("Ignoring %s: it has no data", path)
            except InvalidRecord as problem:
                self._told[path] = str(problem)
                if told != str(problem):
                    self.log.error("Ignoring %s: %s", path, problem)

    # -- builds --

    def new_build(self, build: ImageBuild, under: ZkLock | None = None) -> str:
        """Store a build that has no id yet, under the lock of its image; sets and returns its id."""
        build_id = uuid.uuid4().hex
        path = caches.build(build.image_name, build_id)
        data = paths.encode(build.to_dict(wall_time()))
        ensure_path(self._client, caches.builds(build.image_name))
        tx = self._transaction(under)
        tx.create(path, data)
        tx.commit_unless(lambda: self._is_there(path))
        build.id, build.version = build_id, 0
        return build_id

    def store_build(self, build: ImageBuild, under: ZkLock | None = None) -> None:
        """Overwrite a build."""
        self._save(caches.build(build.image_name, build.key), build, under)

    def replace_bad_build(self, image: str, build_id: str, under: ZkLock) -> bool:
        """Make a build `deleting` whose data are no record, under its lock. False = it is a record, or gone.

        :raises ZKConflict: somebody else wrote it meanwhile.
        """
        path = caches.build(image, build_id)
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
        root = caches.build(image, build_id)
        tx = Transaction(self._client)
        if under is not None:
            tx.delete(under.contender)
        for path, kind in reversed(self._subtree(root)):
            if under is not None and path == under.contender:
                continue
            if kind in (caches.Kind.UPLOAD, caches.Kind.CONTENDER):
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
        build_path = caches.build(image, build_id)
        # The directory of the lock uses up the first number, as in released builders.
        self._make_below(build_path, caches.upload_lock(image, build_id, provider))
        tx = self._transaction(under)
        tx.check(build_path)
        data = paths.encode(upload.to_dict(wall_time()))
        tx.create_record(f"{caches.uploads(image, build_id, provider)}/", upload, data)
        tx.commit()
        return upload.key

    def store_upload(self, upload: ImageUpload, under: ZkLock | None = None) -> None:
        """Overwrite an upload."""
        image, build_id, provider = upload.image_name, upload.build_id, upload.provider_name
        self._save(caches.upload(image, build_id, provider, upload.key), upload, under)

    def roll_back(self, to: ImageUpload, current: ImageUpload) -> None:
        """Store an upload of a provider again, so that it is the current one, and mark the one that was, in one write.

        The older one gets a new time; the newer one keeps its own.
        """
        to.state = states.READY
        to.rolled_back, current.rolled_back = False, True
        # It was promoted, if it was a candidate, and it was not the evidence that took it back.
        current.verdict = ""
        tx = Transaction(self._client)
        for upload in (to, current):
            path = caches.upload(upload.image_name, upload.build_id, upload.provider_name, upload.key)
            tx.set_record(path, upload, paths.encode(upload.to_dict(wall_time())))
        tx.commit()

    def end_candidacy(
        self, upload: ImageUpload, verdict: str, current: ImageUpload | None, *, promoted: bool, pause: bool = False
    ) -> None:
        """Promote a candidate, or roll it back, in one write: of several who do so one succeeds (CA-6).

        :param upload: a copy of it. ``verdict``: why, for people. ``current``: what its provider uses.
        :param pause: pause its image, which is not paused, in the same write.
        :raises ZKConflict: it was changed meanwhile; nothing was written.
        """
        now = wall_time()
        upload.end_candidacy(verdict, now, current, promoted=promoted)
        path = caches.upload(upload.image_name, upload.build_id, upload.provider_name, upload.key)
        tx = Transaction(self._client)
        tx.set_record(path, upload, paths.encode(upload.to_dict(now)))
        if pause:
            tx.create(caches.pause(upload.image_name))
        tx.commit()

    def delete_upload(
        self, image: str, build_id: str, provider: str, upload_id: str, under: ZkLock | None = None
    ) -> None:
        """Remove the record of an upload; one that is gone is fine. The cloud is not touched.

        :param under: the lock of this number; it goes with the record.
        """
        path = caches.upload(image, build_id, provider, upload_id)
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
        self._remove(caches.provider(image, build_id, provider))

    # -- requests and pauses --

    def request_build(self, image: str, source: ImageSource | None = None) -> None:
        """Ask for a build; asking twice makes one. To write a request again ends a back-off (B-13).

        :param source: import this in place of a build. The last request counts.
        """
        path, kazoo = caches.build_request(image), self._client.kazoo
        data = b"" if source is None else paths.encode(source.to_request())
        with translated():
            with contextlib.suppress(NoNodeError):
                kazoo.retry(kazoo.set, path, data)
                return
            ensure_path(self._client, caches.image(image))
            try:
                # Never without its data: a builder would build.
                kazoo.retry(kazoo.create, path, data)
            except NodeExistsError:
                kazoo.retry(kazoo.set, path, data)

    def remove_build_request(self, image: str, version: int = -1) -> None:
        """No build is asked for any more.

        :param version: only this one, see `ImageBuildRequest`; -1 = any. Another one stays.
        """
        kazoo = self._client.kazoo
        with translated(), contextlib.suppress(NoNodeError, BadVersionError):
            kazoo.retry(kazoo.delete, caches.build_request(image), version)

    def set_paused(self, image: str, paused: bool) -> None:
        """Pause builds of an image, or go on with them."""
        if paused:
            ensure_path(self._client, caches.pause(image))
        else:
            self._remove(caches.pause(image))

    # -- locks --

    def build_lock(
        self, image: str, *, blocking: bool = False, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one builds an image at a time.

        :param timeout: seconds to wait at most when ``blocking``; None = for ever.
        :raises ZKLockException: somebody else does.
        """
        return self._locked(caches.IMAGES, caches.build_lock(image), blocking, timeout)

    def build_id_lock(
        self, image: str, build_id: str, *, blocking: bool = False, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one marks or removes a build at a time. Raises ZKLockException, and ZKConflict: there is no build.

        One without data can be locked, because it is to be removed, too.
        """
        record = caches.build(image, build_id)
        return self._locked(record, caches.build_id_lock(image, build_id), blocking, timeout)

    def upload_lock(
        self, image: str, build_id: str, provider: str, *, blocking: bool = False, timeout: float | None = None
    ) -> contextlib.AbstractContextManager[ZkLock]:
        """Only one uploads a build to a provider. Raises ZKLockException, and ZKConflict: there is no build."""
        record = caches.build(image, build_id)
        lock_dir = caches.upload_lock(image, build_id, provider)
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
        record = caches.upload(image, build_id, provider, upload_id)
        return self._locked(record, caches.upload_id_lock(image, build_id, provider, upload_id), blocking, timeout)

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
        if record != caches.IMAGES:
            self._make_below(record, lock_dir)
        lock = transactions.acquire(self._client, lock_dir, blocking=blocking, timeout=timeout)
        try:
            if needs_data:
                self._check_data(record)
            yield lock
        finally:
            transactions.release(self._client, lock)

    def _check_data(self, record: str) -> None:
        """A record may have been removed while its lock was being taken; then Kazoo has made it again, without data."""
        stat = self._stat(record)
        if stat is None or not stat.dataLength:
            raise ZKConflict(f"{record} does not exist any more")

    # -- znodes --

    def _transaction(self, under: ZkLock | None) -> Transaction:
        tx = Transaction(self._client)
        if under is not None:
            tx.check(under.contender)
        return tx

    def _save(self, path: str, record: ImageBuild | ImageUpload, under: ZkLock | None) -> None:
        data = paths.encode(record.to_dict(wall_time()))
        tx = self._transaction(under)
        tx.set_record(path, record, data)
        tx.commit_unless(lambda: was_written(self._client, path, record, data))

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
                    raise ZKConflict(f"{record} does not exist any more") from None

    def _is_there(self, path: str) -> bool:
        """Is it there, when all that was written before has arrived?"""
        sync(self._client, path)
        return self._stat(path) is not None

    def _subtree(self, root: str) -> list[tuple[str, caches.Kind]]:
        """A znode and all below it, parents first; nothing if it is not there."""
        walk = _walk(self._client, root, lambda path: True)
        return [(path, caches.kind_of(path)) for path, names in walk if names is not None]

    def _remove(self, path: str) -> None:
        """Delete a znode with all below; one that is gone is fine."""
        transactions.remove(self._client, path, recursive=True)


# All images, for commands. They are read directly, not from a cache.


def read_images(client: ZooKeeperClient) -> ImagesView:
    """All images; bad records are logged and have no record in the view.

    As in released commands images and providers are in the order of their names, builds and uploads in the order in
    which ZooKeeper lists them. Blocks for some round trips, however many images there are: a packet asks for the
    znodes of a level.

    :raises ZKException: ZooKeeper could not be asked.
    """
    tree = ImageTree(as_listed=True)
    with_data: list[str] = []
    for path, names in _walk(client, caches.IMAGES, caches.has_children):
        if names is None:
            # It was deleted meanwhile.
            tree.remove(path)
        else:
            tree.set_children(path, names)
            children = [f"{path}/{name}" for name in names]
            with_data += filter(caches.has_data, children)
    for path, found in zip(with_data, transactions.read_data(client, with_data), strict=True):
        if found is None:
            tree.remove(path)
        else:
            tree.load(path, *found)
    return ImagesView(dict(sorted(tree.views().items())))


def _walk(
    client: ZooKeeperClient, root: str, has_children: Callable[[str], bool]
) -> Iterator[tuple[str, list[str] | None]]:
    """A znode and all below it, level by level: path and names of the children; None = it is not there."""
    level = [root]
    while level:
        below: list[str] = []
        for path, names in zip(level, transactions.read_children(client, level), strict=True):
            yield path, names
            below += [child for name in names or () if has_children(child := f"{path}/{name}")]
        level = below


# Builds, uploads and pauses of images as one JSON object, and back (reference/zookeeper 6.4).
#
# The object has the path of each znode, and what is stored there as a text. Records are kept as they are: those of
# older releases, with keys that this one does not know or without keys that it has, come back as they were.
#
# The text of each build begins with the id of the installation (D-10): earlier releases refuse a path that is no image,
# but keep a key that they do not know.

#: Of what an export has.
_KINDS: Final = (Kind.PAUSE, Kind.BUILD, Kind.UPLOAD)
#: Version of a znode that is not there.
_MISSING: Final = -2
#: An upload has a number with so many digits, which is not higher than this: each costs some time.
_DIGITS: Final = 10
_HIGHEST: Final = 1_000_000
#: Numbers that are used up in one write; each is two operations.
_NUMBERS_AT_ONCE: Final = 500
#: How the text of a build begins. It is taken off again as it was put there, so a record stays the same to the byte.
_MARK: Final = '{{"installation_id":"{}",'
_MARKED: Final = re.compile(rf'\{{"installation_id":"([0-9a-f]{{{components.ID_DIGITS}}})",')


class Unusable(ZKException):
    """It is no export of image data: nothing was written."""


class Different(ZKException):
    """ZooKeeper has other records in the same places: nothing was written."""


def export_images(client: ZooKeeperClient) -> dict[str, str]:
    """Path of each znode -> what is stored there, after the id of the installation; '' for a pause. Blocks."""
    ours = components.read_installation(client)
    wanted = list(_znodes(read_images(client)))
    found = transactions.read_data(client, wanted)
    data = {
        path: "" if caches.kind_of(path) is Kind.PAUSE else znode[0].decode(errors="replace")
        for path, znode in zip(wanted, found, strict=True)
        if znode is not None
    }
    return data if ours is None else {path: _with_id(path, text, ours.id) for path, text in data.items()}


def _with_id(path: str, text: str, installation_id: str) -> str:
    if caches.kind_of(path) is not Kind.BUILD or not text.startswith("{"):
        return text
    # One that an earlier release has imported still has its own.
    return _MARK.format(installation_id) + _MARKED.sub("{", text, count=1)[1:]


def _without_ids(data: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """What was exported, and the ids that it bears."""
    ids = dict.fromkeys(found[1] for text in data.values() if (found := _MARKED.match(text)))
    return {path: _MARKED.sub("{", text, count=1) for path, text in data.items()}, tuple(ids)


def _znodes(images: ImagesView) -> Iterator[str]:
    for image in images.images.values():
        if image.paused:
            yield caches.pause(image.name)
        for build in image.builds.values():
            yield caches.build(image.name, build.id)
            for provider, uploads in build.uploads.items():
                yield from (caches.upload(image.name, build.id, provider, upload.id) for upload in uploads)


def problem_of(path: str, text: Any) -> str | None:
    """Why an entry cannot be imported; None = it can."""
    names = caches.parts(path) if path.startswith(f"{caches.IMAGES}/") else []
    kind = caches.kind(names)
    if not names or kind not in _KINDS or not all(map(paths.is_name, names)):
        return f"{path!r} is no image, build or upload"
    if not isinstance(text, str):
        return f"{path} has a {type(text).__name__} instead of a text"
    if kind is Kind.PAUSE:
        return f"{path} has a text, but a pause has none" if text else None
    if kind is Kind.UPLOAD and not _is_number(names[-1]):
        return f"{path}: an upload has a number of {_DIGITS} digits, at most {_HIGHEST}"
    try:
        record_of(path, paths.decode(text.encode(errors="surrogatepass")))
    except InvalidRecord as problem:
        return f"{path}: {problem}"
    return None


def sort_out(data: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """What can be imported, and of all else why it cannot; an upload needs its build."""
    problems = {path: problem for path, text in data.items() if (problem := problem_of(path, text)) is not None}
    for path in data:
        if path not in problems and caches.kind_of(path) is Kind.UPLOAD:
            build = _build_of(path)
            if build not in data or build in problems:
                problems[path] = f"{path}: there is no build {build}"
    return {path: text for path, text in data.items() if path not in problems}, list(problems.values())


def check(data: Mapping[str, Any]) -> None:
    """Can all of it be imported? Raises Unusable."""
    problems = sort_out(data)[1]
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise Unusable(f"{problems[0]}{more}")


def import_images(client: ZooKeeperClient, data: Mapping[str, str], *, replace: bool = False) -> None:
    """Write what `export_images` gave; what is there and not in it stays. Blocks for round trips.

    What bears the id of the installation that it comes from is ours from then on (D-10).

    No locks are taken: nobody else may write images meanwhile. Uploads that are made later get higher numbers.

    :param replace: records that are there and differ are overwritten.
    :raises Unusable: an entry is no record of an image; nothing was written.
    :raises Different: without ``replace``: there are other records; nothing was written.
    :raises ZKConflict: somebody else wrote meanwhile; a part was written.
    """
    check(data)
    data, ids = _without_ids(data)
    versions = _versions(client, data)
    different = [path for path, version in versions.items() if version != _MISSING]
    if different and not replace:
        more = f" and {len(different) - 1} more" if len(different) > 1 else ""
        raise Different(f"ZooKeeper has other data in {different[0]}{more}")
    if ids:
        components.adopt(client, ids)
    # A build without data would be taken for a broken one: they come first, with their data.
    for path, version in versions.items():
        if caches.kind_of(path) is not Kind.UPLOAD:
            _write(client, path, data[path].encode(), version)
    highest: dict[str, int] = {}
    for path in data:
        if caches.kind_of(path) is Kind.UPLOAD:
            parent, _, number = path.rpartition("/")
            highest[parent] = max(highest.get(parent, 0), int(number))
    for parent, last in highest.items():
        _use_up_numbers(client, parent, last)
    for path, version in versions.items():
        if caches.kind_of(path) is Kind.UPLOAD:
            _write(client, path, data[path].encode(), version)


def _versions(client: ZooKeeperClient, data: Mapping[str, str]) -> dict[str, int]:
    """Path -> version of the znode that is there, or `_MISSING`; those that are as in the export are left out."""
    found = zip(data.items(), transactions.read_data(client, data), strict=True)
    return {
        path: _MISSING if znode is None else znode[1].version
        for (path, text), znode in found
        if znode is None or znode[0] != text.encode()
    }


def _write(client: ZooKeeperClient, path: str, data: bytes, version: int) -> None:
    """Write a znode, unless somebody else has done it meanwhile. Raises ZKConflict.

    :param version: of what is there, or `_MISSING`.
    """
    kazoo = client.kazoo
    ensure_path(client, path.rpartition("/")[0])
    with translated():
        try:
            if version == _MISSING:
                kazoo.retry(kazoo.create, path, data)
            else:
                kazoo.retry(kazoo.set, path, data, version)
        except (BadVersionError, NodeExistsError, NoNodeError):
            # The answer to our own first attempt may have been lost.
            there = next(transactions.read_data(client, [path]))
            if there is None or there[0] != data:
                raise ZKConflict(f"{path} was changed meanwhile; a part was imported") from None


def _use_up_numbers(client: ZooKeeperClient, parent: str, highest: int) -> None:
    """ZooKeeper counts the children that were ever made: make and remove some until it is past the highest number."""
    ensure_path(client, parent)
    while True:
        stat = transactions.stat_of(client, parent)
        # ZooKeeper tells creations and deletions together.
        made = (stat.cversion + stat.numChildren) // 2
        if made > highest:
            return
        transaction = Transaction(client)
        for _ in range(min(_NUMBERS_AT_ONCE, highest + 1 - made)):
            # In one write with its removal: nobody sees it, and none stays if the answer is lost.
            path = f"{parent}/{uuid.uuid4().hex}"
            transaction.create(path)
            transaction.delete(path)
        transaction.commit()


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) == _DIGITS and int(name) <= _HIGHEST


def _build_of(path: str) -> str:
    """Path of the build of an upload."""
    names = caches.parts(path)
    return caches.build(names[0], names[2])
