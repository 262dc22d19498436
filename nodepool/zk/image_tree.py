# SPDX-License-Identifier: Apache-2.0
"""The znodes of images as far as they are known, and the views that follow from them. Nothing here asks ZooKeeper."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from nodepool import log_names
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.model.image_view import BuildView, ImageView, UploadView
from nodepool.model.record import InvalidRecord
from nodepool.zk import codec, image_paths, paths
from nodepool.zk.image_paths import Kind


class _Znode:
    """One znode.

    :param changed: when its data were written last, seconds since the epoch.
    :param created: when it was made, seconds since the epoch.
    :param created_zxid: ZooKeeper's number of the change that made it.
    :param changed_zxid: of the one that wrote its data last.
    :param problem: why its data are no record.
    """

    __slots__ = ("changed", "changed_zxid", "children", "created", "created_zxid", "problem", "record")

    def __init__(self) -> None:
        self.children: dict[str, _Znode] = {}
        self.changed = 0.0
        self.created = 0.0
        self.created_zxid = 0
        self.changed_zxid = 0
        self.record: Any = None
        self.problem = ""

    def below(self, *names: str) -> _Znode | None:
        found: _Znode | None = self
        for name in names:
            found = None if found is None else found.children.get(name)
        return found

    def is_locked(self) -> bool:
        """Does somebody hold or wait for the lock in it?"""
        lock = self.children.get(paths.LOCK)
        return lock is not None and bool(lock.children)


class ImageTree:
    """Owned by one thread. Paths are whole ones, at or below `image_paths.IMAGES`."""

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self) -> None:
        self._root = _Znode()

    def image_names(self) -> list[str]:
        return list(self._root.children)

    def add(self, path: str) -> None:
        """A znode is there, and so are its parents."""
        found = self._root
        for name in image_paths.parts(path):
            found = found.children.setdefault(name, _Znode())

    def remove(self, path: str) -> None:
        """A znode is gone with all below; one that was not known is fine."""
        names = image_paths.parts(path)
        if not names:
            self._root = _Znode()
            return
        parent = self._root.below(*names[:-1])
        if parent is not None:
            parent.children.pop(names[-1], None)

    def set_children(self, path: str, names: Iterable[str]) -> None:
        """The znode has these children and no others."""
        znode = self._root.below(*image_paths.parts(path))
        if znode is not None:
            znode.children = {name: znode.children.get(name) or _Znode() for name in names}

    def load(self, path: str, data: bytes, stat: Any) -> None:
        """What was read of a build, an upload or a request for a build.

        :param stat: Kazoo's.
        """
        names = image_paths.parts(path)
        znode = self._root.below(*names)
        if znode is None:
            return
        znode.created_zxid, znode.created, znode.changed = stat.czxid, stat.ctime / 1000, stat.mtime / 1000
        znode.changed_zxid = stat.mzxid
        if image_paths.kind(names) is Kind.REQUEST:
            return
        try:
            znode.record = read_record(path, data, stat)
            znode.problem = ""
        except InvalidRecord as problem:
            znode.record = None
            if znode.problem != str(problem):
                znode.problem = str(problem)
                # Znodes without data are there for a moment, when a lock is taken of what was just removed.
                level = logging.DEBUG if isinstance(problem, codec.EmptyRecord) else logging.ERROR
                self.log.log(level, "Ignoring %s: %s", path, problem)

    def view(self, name: str) -> ImageView | None:
        """An image as it is known; None = there is none."""
        image = self._root.children.get(name)
        if image is None:
            return None
        request = image.children.get("request-build")
        builds = image.children.get("builds") or _Znode()
        return ImageView(
            name,
            paused="pause" in image.children,
            build_requested=None if request is None else request.created,
            request_zxid=0 if request is None else request.changed_zxid,
            build_locked=builds.is_locked(),
            builds=MappingProxyType(
                {build_id: _build_view(build_id, build) for build_id, build in _without_lock(builds)}
            ),
        )


def _without_lock(znode: _Znode) -> list[tuple[str, _Znode]]:
    return sorted((name, child) for name, child in znode.children.items() if name != paths.LOCK)


def _build_view(build_id: str, build: _Znode) -> BuildView:
    providers = build.children.get("providers") or _Znode()
    uploads = {name: provider.children.get("images") or _Znode() for name, provider in providers.children.items()}
    return BuildView(
        build_id,
        build.record,
        changed=build.changed,
        created_zxid=build.created_zxid,
        locked=build.is_locked(),
        uploads=MappingProxyType(
            {
                name: tuple(
                    UploadView(upload_id, upload.record, upload.changed, upload.is_locked())
                    for upload_id, upload in _without_lock(znode)
                )
                for name, znode in uploads.items()
            }
        ),
        uploading=frozenset(name for name, znode in uploads.items() if znode.is_locked()),
    )


def read_record(path: str, data: bytes, stat: Any) -> ImageBuild | ImageUpload:
    """The build or upload that a znode holds, with its version. Raises InvalidRecord."""
    record = record_of(path, codec.decode(data))
    record.version, record.mzxid = stat.version, stat.mzxid
    return record


def record_of(path: str, data: dict[str, Any]) -> ImageBuild | ImageUpload:
    """The build or upload that the object in a znode means. Raises InvalidRecord."""
    names = image_paths.parts(path)
    if image_paths.kind(names) is Kind.BUILD:
        return ImageBuild.from_dict(data, names[0], names[2])
    return ImageUpload.from_dict(data, names[0], names[2], names[4], names[6])
