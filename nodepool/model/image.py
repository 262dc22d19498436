# SPDX-License-Identifier: Apache-2.0
"""Image build and upload records (reference/zookeeper 6), then all images as they were at one moment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from nodepool.model import states
from nodepool.model.record import DeletableRecord, InvalidRecord, TypedRecord, is_finite, optional_str
from nodepool.model.status import Maintenance, Mode

#: What a record without the key means.
DEFAULT_USERNAME = "zuul"
DEFAULT_PYTHON_PATH = "/usr/bin/python2"
#: Keys of a ready build that released builders do not write, and released readers ignore.
_DURATION: Final = "duration"
_SIZE: Final = "size"
_SOURCE: Final = "source"
_CHECKSUM: Final = "source_checksum"

#: Formats of images that can be imported.
IMPORTED_FORMATS: Final = ("qcow2", "raw", "vhd", "vhdx", "vmdk")


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Where an image comes from that is imported, not built.

    :param place: absolute path of a file on the host of a builder, or an address with https.
    :param checksum: ``<algorithm>:<hexadecimal digits>``; empty = none is known, or `checksum_url` has it.
    :param format: one of `IMPORTED_FORMATS`; empty = by the file's name and its bytes.
    :param checksum_url: address of a list of checksums, as a vendor has it; empty = there is none.
    """

    place: str
    checksum: str = ""
    format: str = ""
    checksum_url: str = ""

    @classmethod
    def of_request(cls, data: Mapping[str, Any]) -> Self:
        """What was asked for, with the keys ``file`` or ``url``, ``sha256`` and ``format``; None counts as not given.

        :raises InvalidRecord: it cannot be imported; the text is for the user.
        """
        file, url, checksum, form = (
            optional_str(key, data.get(key)) or "" for key in ("file", "url", "sha256", "format")
        )
        if bool(file) == bool(url):
            raise InvalidRecord("give either a file or a url")
        if file and not (file.startswith("/") and file.isprintable()):
            raise InvalidRecord(f"file must be an absolute path of printable characters, got {file!r}")
        problem = problem_of_address(url) if url else ""
        if problem:
            raise InvalidRecord(f"url {problem}")
        if url and not checksum:
            raise InvalidRecord("a url needs a sha256")
        if checksum and not re.fullmatch("[0-9a-fA-F]{64}", checksum):
            raise InvalidRecord(f"sha256 must have 64 hexadecimal digits, got {checksum!r}")
        if form and form not in IMPORTED_FORMATS:
            raise InvalidRecord(f"format must be one of {', '.join(IMPORTED_FORMATS)}, got {form!r}")
        return cls(file or url, f"sha256:{checksum.lower()}" if checksum else "", form)

    def to_request(self) -> dict[str, str]:
        """What `of_request` reads."""
        found = {"file" if self.is_file else "url": self.place, "sha256": self.checksum[7:], "format": self.format}
        return {key: value for key, value in found.items() if value}

    @property
    def is_file(self) -> bool:
        """Must the builder have it?"""
        return self.place.startswith("/")

    @property
    def shown(self) -> str:
        """Without what follows the path of an address: with the rest of it anyone may be able to read the file."""
        return self.place if self.is_file else urlsplit(self.place)._replace(query="", fragment="").geturl()


def problem_of_address(text: str) -> str:
    """Why a builder fetches nothing from an address; empty = it does."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme == "https" and parts.hostname and parts.port != 0 and text.isprintable()
    except ValueError:
        usable = False
    if not usable:
        # Without the address: its query is a secret, and errors are logged.
        return "must begin with https:// and a host"
    return "must have no user and no password in it" if "@" in parts.netloc else ""


class _ImageRecord(DeletableRecord):
    username: str | None
    python_path: str | None
    shell_type: str | None

    def load(self, data: dict[str, Any]) -> None:
        super().load({"username": DEFAULT_USERNAME, "python_path": DEFAULT_PYTHON_PATH, **data})


class ImageBuild(_ImageRecord):
    """One build of a disk image, ``/nodepool/images/<image>/builds/<id>``."""

    STATES: ClassVar[tuple[str, ...]] = states.BUILD_STATES
    LEFT_OUT = ("builder", "builder_id")
    OTHER_KEYS = ("formats",)

    builder: str | None
    builder_id: str | None

    def __init__(self, image_name: str, id: str | None = None) -> None:
        super().__init__(id)
        self.image_name = image_name
        self.formats: list[str] = []

    @classmethod
    def from_dict(cls, data: dict[str, Any], image_name: str, id: str) -> Self:
        """Read a record. Raises InvalidRecord."""
        build = cls(image_name, id)
        build.load(data)
        return build

    @classmethod
    def fromDict(cls, d: dict[str, Any], image_name: str = "", o_id: str = "") -> Self:
        """`from_dict`, for drivers written for 11.0.0."""
        return cls.from_dict(d, image_name, o_id)

    @property
    def duration(self) -> float | None:
        """How long the build took, in seconds; None = its builder did not write it, or someone wrote anything."""
        return self._told(_DURATION)

    @property
    def size(self) -> float | None:
        """What its images took on disk when they were built, in bytes; None as for `duration`."""
        return self._told(_SIZE)

    @property
    def source(self) -> str | None:
        """Where it was imported from; None = it was built."""
        value = self.extra.get(_SOURCE)
        return value if isinstance(value, str) else None

    @property
    def source_checksum(self) -> str | None:
        """What was known of the file's checksum when it was imported, as `ImageSource.checksum`."""
        value = self.extra.get(_CHECKSUM)
        return value if isinstance(value, str) else None

    def set_source(self, source: ImageSource) -> None:
        """Set `source` and `source_checksum`."""
        self.extra |= {_SOURCE: source.shown} | ({_CHECKSUM: source.checksum} if source.checksum else {})

    def tell(self, duration: float, size: int) -> None:
        """Set `duration` (to milliseconds) and `size`."""
        self.extra.update({_DURATION: round(duration, 3), _SIZE: size})

    def _told(self, key: str) -> float | None:
        value = self.extra.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_finite(value) or value < 0:
            return None
        return value

    def load(self, data: dict[str, Any]) -> None:
        super().load(data)
        formats = optional_str("formats", data.get("formats")) or ""
        self.formats = [name for name in formats.split(",") if name]

    def to_dict(self, now: float) -> dict[str, Any]:
        """The JSON object to store; keys without a value are left out as the contract says."""
        formats = {"formats": ",".join(sorted(self.formats))} if self.formats else {}
        return {**super().to_dict(now), **formats}


#: So much a candidate is older than the upload that is used, in seconds, for those who know no candidates.
_BEHIND_SECONDS: Final = 0.001
#: With more, too little is left to compare it with.
MOST_CANARY: Final = 0.5


#: Instead of a command: a job of the site checks a candidate, on a node whose label ends so.
CHECK_BY_LABEL: Final = "label"
CANDIDATE_LABEL: Final = "@candidate"


@dataclass(frozen=True)
class Promotion(TypedRecord):
    """How a candidate becomes the upload that is used: ``promote`` of its image when it was made (rules CA).

    :param check: command that a node of it must run well first, or `CHECK_BY_LABEL`; None = none.
    :param check_timeout: limit of the command, in seconds.
    :param canary: part of the launches that try it, above 0 and at most `MOST_CANARY`.
    :param seconds: how long they try it at least.
    :param min_nodes: how many launches of it are counted at least.
    :param max_failure_ratio: it may fail so many times as often as the upload in use; above 1.
    """

    check: str | None = None
    check_timeout: float = 600.0
    canary: float = 0.1
    seconds: float = 7200.0
    min_nodes: int = 20
    max_failure_ratio: float = 1.5


def _promotion(data: Any) -> Promotion | None:
    """The mark of a candidate. One that cannot be read is a candidate all the same, with the defaults."""
    if not data:
        return None
    try:
        found = Promotion.of_record(data)
    except InvalidRecord:
        return Promotion()
    return found if 0 < found.canary <= MOST_CANARY and found.max_failure_ratio > 1 else Promotion()


class ImageUpload(_ImageRecord):
    """One upload of a build, ``.../builds/<build>/providers/<provider>/images/<id>``."""

    STATES: ClassVar[tuple[str, ...]] = states.UPLOAD_STATES
    OTHER_KEYS = ("rolled_back", "candidate", "verdict")

    external_id: Any
    external_name: str | None
    format: str | None

    def __init__(self, image_name: str, build_id: str, provider_name: str, id: str | None = None) -> None:
        super().__init__(id)
        self.image_name = image_name
        self.build_id = build_id
        self.provider_name = provider_name
        #: Was an older upload put in front of this one? Not part of the contract: other builders keep it or lose it.
        self.rolled_back = False
        #: Of a ready upload that is still to show that it is as good as the current one; None = it is no candidate.
        self.candidate: Promotion | None = None
        #: Why it was promoted or rolled back; empty = it never was a candidate.
        self.verdict = ""

    @classmethod
    def from_dict(cls, data: dict[str, Any], image_name: str, build_id: str, provider_name: str, id: str) -> Self:
        """Read a record. Raises InvalidRecord."""
        upload = cls(image_name, build_id, provider_name, id)
        upload.load(data)
        return upload

    @classmethod
    def fromDict(cls, d: dict[str, Any], build_id: str, provider_name: str, image_name: str, upload_id: str) -> Self:
        """`from_dict`, for drivers written for 11.0.0: the arguments have another order."""
        return cls.from_dict(d, image_name, build_id, provider_name, upload_id)

    def load(self, data: dict[str, Any]) -> None:
        super().load(data)
        self.rolled_back = data.get("rolled_back") is True
        self.candidate = _promotion(data.get("candidate"))
        self.verdict = str(data.get("verdict") or "")

    def to_dict(self, now: float) -> dict[str, Any]:
        candidate = None if self.candidate is None else self.candidate.to_dict()
        own = {"rolled_back": self.rolled_back, "candidate": candidate, "verdict": self.verdict}
        return {**super().to_dict(now), **{name: value for name, value in own.items() if value}}

    @property
    def is_on_trial(self) -> bool:
        """Is it a candidate, or was it one until it was rolled back?"""
        return self.candidate is not None or (self.rolled_back and bool(self.verdict))

    def become_candidate(self, promotion: Promotion, current: ImageUpload) -> None:
        """Make it ready, but older than the current one: launchers of 11.0.0 choose the newest (CA-1)."""
        self.state = states.READY
        self._state_changed = False
        self.state_time = (current.state_time or 0.0) - _BEHIND_SECONDS
        self.candidate = promotion

    def end_candidacy(self, verdict: str, now: float, current: ImageUpload | None, *, promoted: bool) -> None:
        """It is the current one from now on, or is rolled back.

        :param verdict: why, for people. ``now``: seconds since the epoch.
        :param current: what is used until then: another one than when this became a candidate, if it waited.
        """
        self.candidate, self.verdict, self.rolled_back = None, verdict, not promoted
        if promoted:
            # Clocks differ: it must be newer than the current one all the same.
            before = max((self if current is None else current).state_time or 0.0, self.state_time or 0.0)
            self.state_time = max(now, before + _BEHIND_SECONDS)


@dataclass(frozen=True)
class ImageBuildRequest:
    """Someone asked for a build.

    :param pending: it is still to be begun.
    :param state_time: of the request, seconds since the epoch.
    :param source: what is to be imported in place of a build; None = it is to be built.
    :param version: of the znode.
    """

    image_name: str
    pending: bool
    state_time: float
    source: ImageSource | None = None
    version: int = -1


# All images as they were at one moment: builds, uploads, who works on them, what was asked for.
#
# Views are values: they do not change, nor do the records in them. A writer copies a record first.


@dataclass(frozen=True, slots=True)
class UploadView:
    """One upload of a build to a provider.

    :param record: None = what is stored is no record of an upload.
    :param changed: when its data were written last, seconds since the epoch by ZooKeeper's clock; 0 = not known.
    :param locked: does someone hold the lock of this number? It is being deleted.
    """

    id: str
    record: ImageUpload | None
    changed: float = 0.0
    locked: bool = False


@dataclass(frozen=True, slots=True)
class BuildView:
    """One build of an image.

    :param record: None = what is stored is no record of a build.
    :param changed: when its data were written last, seconds since the epoch by ZooKeeper's clock; 0 = not known.
    :param created_zxid: ZooKeeper's number of the change that made it; 0 = not known.
    :param locked: does someone hold the lock of this build? It is being marked or removed.
    :param uploads: provider -> uploads in the order of their numbers. A provider may be there without any.
    :param uploading: providers to which someone uploads it now (the upload lock is held).
    """

    id: str
    record: ImageBuild | None
    changed: float = 0.0
    created_zxid: int = 0
    locked: bool = False
    uploads: Mapping[str, tuple[UploadView, ...]] = field(default_factory=dict)
    uploading: frozenset[str] = frozenset()

    @property
    def state(self) -> str | None:
        """State of the record; None = unreadable."""
        return None if self.record is None else self.record.state

    @property
    def time(self) -> float:
        """When it got its state, in seconds since the epoch; 0 = not known."""
        return 0.0 if self.record is None else self.record.state_time or 0.0

    @property
    def upload_count(self) -> int:
        """Uploads in every state, readable or not."""
        return sum(len(uploads) for uploads in self.uploads.values())

    def all_uploads(self) -> Iterator[ImageUpload]:
        """All readable uploads."""
        for uploads in self.uploads.values():
            yield from (upload.record for upload in uploads if upload.record is not None)

    def ready_uploads(self, provider: str) -> list[ImageUpload]:
        """Ready uploads to a provider."""
        found = (upload.record for upload in self.uploads.get(provider, ()))
        return [record for record in found if record is not None and record.state == states.READY]


@dataclass(frozen=True, slots=True)
class ImageView:
    """One image.

    :param paused: is nothing to be built (the flag in ZooKeeper)?
    :param build_requested: when someone asked for a build, in seconds since the epoch; None = no one does.
    :param request_zxid: ZooKeeper's number of when someone did so last. Unlike times it tells what came first.
    :param requested_source: what is to be imported in place of a build; None = it is to be built, if it is.
    :param build_locked: does someone build it now?
    :param builds: by id.
    """

    name: str
    paused: bool = False
    build_requested: float | None = None
    request_zxid: int = 0
    requested_source: ImageSource | None = None
    build_locked: bool = False
    builds: Mapping[str, BuildView] = field(default_factory=dict)
    #: Provider -> `current_upload` and `candidate`: they are asked for at each launch.
    _current: dict[str, ImageUpload] = field(init=False, repr=False, compare=False, default_factory=dict)
    _candidates: dict[str, ImageUpload] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        current, candidates = self._current, self._candidates
        # The oldest build first: its candidate is tried to the end, and newer ones wait.
        for build in sorted(self.builds.values(), key=lambda build: (build.time, build.id)):
            for upload in build.all_uploads():
                best = current.get(upload.provider_name)
                if upload.state == states.READY and upload.candidate is not None:
                    candidates.setdefault(upload.provider_name, upload)
                elif upload.state == states.READY and (best is None or _time(upload) > _time(best)):
                    current[upload.provider_name] = upload
        for provider in candidates.keys() - current.keys():
            # The other one was deleted.
            current[provider] = candidates.pop(provider)

    def builds_in(self, state: str) -> list[BuildView]:
        """Builds in a state, the newest first."""
        found = [build for build in self.builds.values() if build.state == state]
        return sorted(found, key=lambda build: (build.time, build.id), reverse=True)

    def ready_builds(self) -> list[BuildView]:
        """Ready builds, the newest first."""
        return self.builds_in(states.READY)

    def ready_uploads(self, provider: str) -> list[ImageUpload]:
        """Ready uploads to a provider, over all builds, the newest first."""
        found = [upload for build in self.builds.values() for upload in build.ready_uploads(provider)]
        return sorted(found, key=lambda upload: (_time(upload), upload.build_id), reverse=True)

    def current_upload(self, provider: str) -> ImageUpload | None:
        """What a provider's nodes are made from: the ready upload with the greatest state time (6.2), no candidate."""
        return self._current.get(provider)

    def candidates(self) -> Iterator[ImageUpload]:
        """Ready uploads with the mark of a candidate. One of a provider is tried, the others wait."""
        for build in self.builds.values():
            yield from (one for one in build.all_uploads() if one.candidate is not None and one.state == states.READY)

    def candidate(self, provider: str) -> ImageUpload | None:
        """The ready upload that is to be the current one if it is as good; None = there is none (CA-1)."""
        return self._candidates.get(provider)


@dataclass(frozen=True, slots=True)
class ImagesView:
    """All images, by name."""

    images: Mapping[str, ImageView] = field(default_factory=dict)

    def image(self, name: str) -> ImageView:
        """An image; one without anything when there is none."""
        return self.images.get(name) or ImageView(name)

    def with_image(self, name: str, view: ImageView | None) -> ImagesView:
        """The same with another view of one image.

        :param view: None = the image is deleted.
        """
        images = {other: image for other, image in self.images.items() if other != name}
        if view is not None:
            images[name] = view
        return ImagesView(MappingProxyType(images))

    def pauses(self) -> list[Maintenance]:
        """Images that are not built, as maintenance records; since when is not known."""
        return [Maintenance("image", name, Mode.PAUSE) for name, image in self.images.items() if image.paused]


NO_IMAGES: Final = ImagesView()


def _time(upload: ImageUpload) -> float:
    """When it got its state, in seconds since the epoch; 0 = not known."""
    return upload.state_time or 0.0
