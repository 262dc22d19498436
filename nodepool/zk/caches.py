# SPDX-License-Identifier: Apache-2.0
"""The caches of images, of maintenance records and of status records."""

from __future__ import annotations

import logging
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from nodepool.model.image import (
    NO_IMAGES,
    BuildView,
    ImageBuild,
    ImageSource,
    ImagesView,
    ImageUpload,
    ImageView,
    UploadView,
)
from nodepool.model.status import MODES, BuilderStatus, LauncherStatus, Maintenance, MaintenanceRecords, PoolStatus
from nodepool.zk import paths, status
from nodepool.zk.cache import RecordsByKind, SubtreeCache, Znode, ZnodeTree
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.status import BUILDER, LAUNCHER, POOL, in_order_of_launchers, in_order_of_pools

# `ImageCache`: the records of images in ZooKeeper, kept up to date by one recursive watch.
#
# All of it is changed in the connection thread, where events and answers arrive. Readers get views, which never change.
#
# The view of an image is renewed when nothing of the image is being read, so that no view shows a lock that is free
# beside the record that its holder has just overwritten.


class ImageCache(SubtreeCache[[str]]):
    """Follows all images. Made before or after the client is connected; does not block."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._images = ImageTree()
        super().__init__(client, self._images)
        self._view = NO_IMAGES
        self._changed: set[str] = set()
        #: Was everything read once, so that there is a view, be it old?
        self.complete = False
        self.start()

    def snapshot(self) -> ImagesView:
        """All images as they were last known; does not block, any thread. Empty before everything was read once."""
        return self._view

    # -- connection thread --

    def _has_data(self, path: str) -> bool:
        return has_data(path)

    def _has_children(self, path: str) -> bool:
        return has_children(path)

    def _part_of(self, path: str) -> str:
        """Name of the image."""
        return "".join(parts(path)[:1])

    def _forget_questions(self) -> None:
        self._changed.clear()
        super()._forget_questions()

    def _on_change(self, path: str) -> None:
        self._changed.update(parts(path)[:1] or self._images.image_names() or list(self._view.images))

    def _on_settled(self) -> None:
        """Renew the views of changed images of which nothing is being read."""
        for image in [image for image in self._changed if not self._is_open(image)]:
            self._changed.discard(image)
            self._view = self._view.with_image(image, self._images.view(image))
            self._notify(image)

    def _on_complete(self) -> None:
        self._view = ImagesView(self._images.views())
        self.complete = True
        self.ready.set()
        self._notify("")


class ImageTree(ZnodeTree):
    """The znodes of images, and the views that follow from them.

    :param as_listed: builds and uploads are in the order in which ZooKeeper lists them, not in that of their ids.
    """

    # They are there for a moment, when a lock is taken of what was just removed.
    EMPTY_LEVEL = logging.DEBUG

    def __init__(self, *, as_listed: bool = False) -> None:
        super().__init__(IMAGES, _parse)
        self._as_listed = as_listed

    def image_names(self) -> list[str]:
        return list(self.top.children)

    def views(self) -> dict[str, ImageView]:
        """All images, as they are known."""
        return {name: view for name in self.image_names() if (view := self.view(name)) is not None}

    def view(self, name: str) -> ImageView | None:
        """An image as it is known; None = there is none."""
        image = self.top.children.get(name)
        if image is None:
            return None
        request = image.children.get(_REQUEST)
        builds = image.children.get(_BUILDS) or Znode()
        return ImageView(
            name,
            paused=_PAUSE in image.children,
            build_requested=None if request is None else request.stat.ctime / 1000,
            request_zxid=0 if request is None else request.stat.mzxid,
            requested_source=None if request is None else request.record,
            build_locked=builds.is_locked(),
            builds=MappingProxyType({one: self._build_view(one, build) for one, build in self._records(builds)}),
        )

    def _records(self, znode: Znode) -> list[tuple[str, Znode]]:
        """What is below a znode besides its lock."""
        found = [(name, child) for name, child in znode.children.items() if name != paths.LOCK]
        return found if self._as_listed else sorted(found)

    def _build_view(self, build_id: str, build: Znode) -> BuildView:
        providers = sorted((build.children.get(_PROVIDERS) or Znode()).children.items())
        uploads = {name: provider.children.get(_UPLOADS) or Znode() for name, provider in providers}
        views = {
            name: tuple(
                UploadView(one, upload.record, upload.stat.mtime / 1000, upload.is_locked())
                for one, upload in self._records(znode)
            )
            for name, znode in uploads.items()
        }
        return BuildView(
            build_id,
            build.record,
            changed=build.stat.mtime / 1000,
            created_zxid=build.stat.czxid,
            locked=build.is_locked(),
            uploads=MappingProxyType(views),
            uploading=frozenset(name for name, znode in uploads.items() if znode.is_locked()),
        )


def _parse(path: str, data: bytes, stat: Any) -> ImageBuild | ImageUpload | ImageSource | None:
    return requested_source(data) if kind_of(path) is Kind.REQUEST else read_record(path, data, stat)


def requested_source(data: bytes) -> ImageSource | None:
    """What a request wants to be imported; None = it has no data, and wants a build. Raises InvalidRecord."""
    return ImageSource.of_request(paths.decode(data)) if data else None


def read_record(path: str, data: bytes, stat: Any) -> ImageBuild | ImageUpload:
    """The build or upload that a znode holds, with its version. Raises InvalidRecord."""
    record = record_of(path, paths.decode(data))
    record.version, record.mzxid = stat.version, stat.mzxid
    return record


def record_of(path: str, data: dict[str, Any]) -> ImageBuild | ImageUpload:
    """The build or upload that the object in a znode means. Raises InvalidRecord."""
    names = parts(path)
    if kind(names) is Kind.BUILD:
        return ImageBuild.from_dict(data, names[0], names[2])
    return ImageUpload.from_dict(data, names[0], names[2], names[4], names[6])


# Znode paths of images: builds, uploads, their locks, pauses and requests (reference/zookeeper 2).

IMAGES: Final = paths.IMAGES

_PAUSE: Final = "pause"
_REQUEST: Final = "request-build"
_BUILDS: Final = "builds"
_PROVIDERS: Final = "providers"
_UPLOADS: Final = "images"


def image(name: str) -> str:
    return f"{IMAGES}/{name}"


def pause(name: str) -> str:
    """Is there while builds of the image are paused."""
    return f"{IMAGES}/{name}/{_PAUSE}"


def build_request(name: str) -> str:
    """Is there while someone asks for a build."""
    return f"{IMAGES}/{name}/{_REQUEST}"


def builds(name: str) -> str:
    return f"{IMAGES}/{name}/{_BUILDS}"


def build_lock(name: str) -> str:
    """Held while the image is being built."""
    return f"{builds(name)}/{paths.LOCK}"


def build(name: str, build_id: str) -> str:
    return f"{builds(name)}/{build_id}"


def build_id_lock(name: str, build_id: str) -> str:
    """Held while one build becomes `deleting` or is removed."""
    return f"{build(name, build_id)}/{paths.LOCK}"


def providers(name: str, build_id: str) -> str:
    return f"{build(name, build_id)}/{_PROVIDERS}"


def provider(name: str, build_id: str, provider_name: str) -> str:
    return f"{providers(name, build_id)}/{provider_name}"


def uploads(name: str, build_id: str, provider_name: str) -> str:
    return f"{provider(name, build_id, provider_name)}/{_UPLOADS}"


def upload_lock(name: str, build_id: str, provider_name: str) -> str:
    """Held while the build is being uploaded to the provider."""
    return f"{uploads(name, build_id, provider_name)}/{paths.LOCK}"


def upload(name: str, build_id: str, provider_name: str, upload_id: str) -> str:
    return f"{uploads(name, build_id, provider_name)}/{upload_id}"


def path_of_upload(upload: ImageUpload) -> str:
    """Path of a stored upload: the ``image_id`` of its nodes."""
    return f"{uploads(upload.image_name, upload.build_id, upload.provider_name)}/{upload.key}"


def upload_id_lock(name: str, build_id: str, provider_name: str, upload_id: str) -> str:
    """Held while one upload is being deleted."""
    return f"{upload(name, build_id, provider_name, upload_id)}/{paths.LOCK}"


class Kind(Enum):
    """What a znode at or below `IMAGES` is."""

    ROOT = "root"
    IMAGE = "image"
    PAUSE = "pause"
    REQUEST = "request"
    BUILDS = "builds"
    BUILD = "build"
    PROVIDERS = "providers"
    PROVIDER = "provider"
    UPLOADS = "uploads"
    UPLOAD = "upload"
    LOCK = "lock"
    CONTENDER = "contender"
    OTHER = "other"


_WITH_DATA: Final = frozenset({Kind.REQUEST, Kind.BUILD, Kind.UPLOAD})
_WITHOUT_CHILDREN: Final = frozenset({Kind.PAUSE, Kind.REQUEST, Kind.CONTENDER, Kind.OTHER})

#: Kind of a znode -> kinds of its children by name; None stands for any other name.
_CHILDREN: Final[dict[Kind, dict[str | None, Kind]]] = {
    Kind.ROOT: {None: Kind.IMAGE},
    Kind.IMAGE: {_PAUSE: Kind.PAUSE, _REQUEST: Kind.REQUEST, _BUILDS: Kind.BUILDS},
    Kind.BUILDS: {paths.LOCK: Kind.LOCK, None: Kind.BUILD},
    Kind.BUILD: {paths.LOCK: Kind.LOCK, _PROVIDERS: Kind.PROVIDERS},
    Kind.PROVIDERS: {None: Kind.PROVIDER},
    Kind.PROVIDER: {_UPLOADS: Kind.UPLOADS},
    Kind.UPLOADS: {paths.LOCK: Kind.LOCK, None: Kind.UPLOAD},
    Kind.UPLOAD: {paths.LOCK: Kind.LOCK},
    Kind.LOCK: {None: Kind.CONTENDER},
}


def parts(path: str) -> list[str]:
    """Names on the way from `IMAGES` to a znode; none for `IMAGES` itself."""
    return paths.below(IMAGES, path)


def kind(names: list[str]) -> Kind:
    """What the znode is that these `parts` lead to."""
    found = Kind.ROOT
    for name in names:
        below = _CHILDREN.get(found, {})
        found = below.get(name) or below.get(None) or Kind.OTHER
    return found


def kind_of(path: str) -> Kind:
    """What the znode at or below `IMAGES` is."""
    return kind(parts(path))


def has_data(path: str) -> bool:
    """Is there something to know of a znode besides that it exists?"""
    return kind_of(path) in _WITH_DATA


def has_children(path: str) -> bool:
    """May a znode have children that matter?"""
    return kind_of(path) not in _WITHOUT_CHILDREN


# `MaintenanceCache`: the maintenance records as they are now, kept up to date by one recursive watch.

NO_RECORDS: Final[MaintenanceRecords] = MappingProxyType({})


class MaintenanceCache(RecordsByKind):
    """Follows ``/nodepool/maintenance``, which need not exist. Made before or after the client is connected.

    Everything is changed in the connection thread; `snapshot` is replaced as a whole, and any thread may ask for it.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        super().__init__(client, paths.MAINTENANCE, MODES, _read_maintenance)
        self._records = NO_RECORDS
        self.start()

    def snapshot(self) -> MaintenanceRecords:
        """All records as they were last known, also those that are over; does not block."""
        return self._records

    # -- connection thread --

    def _renew(self) -> bool:
        records = {(kind, record.name): record for kind in self._kinds for record in self._entries(kind)}
        changed = records != self._records
        self._records = MappingProxyType(records)
        return changed


def _read_maintenance(path: str, data: bytes, _stat: Any) -> Maintenance:
    subject, name = paths.below(paths.MAINTENANCE, path)
    return Maintenance.of_record(subject, name, paths.decode(data))


# `StatusCache`: what daemons and pools report about themselves, kept up to date by one recursive watch.


class StatusCache(RecordsByKind):
    """Follows ``/nodepool/status`` from `start` to `stop`. A connection has at most one of them.

    Any thread may ask; nothing here blocks. What was known stays known without a connection (``ready`` is clear then).
    Listeners are called without an argument, in the connection thread: they must not block, and ask in another one.
    """

    def __init__(self, client: ZooKeeperClient) -> None:
        super().__init__(client, paths.STATUS, status.READERS, _read_status)

    def pools(self) -> list[PoolStatus]:
        """What all pools of all launchers report, in the order of `nodepool.zk.status.read_pools`; without bad ones.

        A record that did not change is the same object as before.
        """
        return in_order_of_pools(self._entries(POOL))

    def launchers(self) -> list[LauncherStatus]:
        """What all launchers report, as `pools`."""
        return in_order_of_launchers(self._entries(LAUNCHER))

    def builders(self) -> BuilderStatus:
        """What all builders report together."""
        return BuilderStatus.of_records(self._entries(BUILDER))


def _read_status(path: str, data: bytes, _stat: Any) -> Any:
    kind, _ = paths.below(paths.STATUS, path)
    return status.READERS[kind](status.decode(data))
