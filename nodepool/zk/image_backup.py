# SPDX-License-Identifier: Apache-2.0
"""Builds, uploads and pauses of images as one JSON object, and back (reference/zookeeper 6.4).

The object has the path of each znode, and what is stored there as a text. Records are kept as they are: those of older
releases, with keys that this one does not know or without keys that it has, come back as they were.

The text of each build begins with the id of the installation (D-10): earlier releases refuse a path that is no image,
but keep a key that they do not know.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from nodepool.exceptions import ZKConflict, ZKException
from nodepool.model.image import ImagesView
from nodepool.model.record import InvalidRecord
from nodepool.zk import caches, components, paths, transactions
from nodepool.zk.caches import Kind, record_of
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.images import read_images
from nodepool.zk.transactions import Transaction, ensure_path, translated

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
