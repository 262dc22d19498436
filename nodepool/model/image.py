# SPDX-License-Identifier: Apache-2.0
"""Image build and upload records (reference/zookeeper 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from nodepool.model import states
from nodepool.model.record import DeletableRecord, is_finite, optional_str

#: What a record without the key means.
DEFAULT_USERNAME = "zuul"
DEFAULT_PYTHON_PATH = "/usr/bin/python2"
#: Keys of a ready build that released builders do not write, and released readers ignore.
_DURATION: Final = "duration"
_SIZE: Final = "size"


class _ImageRecord(DeletableRecord):
    def __init__(self, id: str | None = None) -> None:
        super().__init__(id)
        self.username: str | None = None
        self.python_path: str | None = None
        self.shell_type: str | None = None

    def _load_common(self, data: dict[str, Any]) -> None:
        self._load_state(data)
        self.username = optional_str("username", data.get("username", DEFAULT_USERNAME))
        self.python_path = optional_str("python_path", data.get("python_path", DEFAULT_PYTHON_PATH))
        self.shell_type = optional_str("shell_type", data.get("shell_type"))

    def _common(self, now: float) -> dict[str, Any]:
        return {
            **self._dump_state(now),
            "username": self.username,
            "python_path": self.python_path,
            "shell_type": self.shell_type,
        }


class ImageBuild(_ImageRecord):
    """One build of a disk image, ``/nodepool/images/<image>/builds/<id>``."""

    STATES: ClassVar[tuple[str, ...]] = states.BUILD_STATES
    _KNOWN: ClassVar[frozenset[str]] = frozenset(
        {"state", "state_time", "builder", "builder_id", "formats", "username", "python_path", "shell_type"}
    )

    def __init__(self, image_name: str, id: str | None = None) -> None:
        super().__init__(id)
        self.image_name = image_name
        self.builder: str | None = None
        self.builder_id: str | None = None
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
        """How long the build took, in seconds; None = its builder did not write it, or somebody wrote anything."""
        return self._told(_DURATION)

    @property
    def size(self) -> float | None:
        """What its images took on disk when they were built, in bytes; None as for `duration`."""
        return self._told(_SIZE)

    def tell(self, duration: float, size: int) -> None:
        """Set `duration` (to milliseconds) and `size`."""
        self.extra.update({_DURATION: round(duration, 3), _SIZE: size})

    def _told(self, key: str) -> float | None:
        value = self.extra.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not is_finite(value) or value < 0:
            return None
        return value

    def load(self, data: dict[str, Any]) -> None:
        self._load_common(data)
        self.builder = optional_str("builder", data.get("builder"))
        self.builder_id = optional_str("builder_id", data.get("builder_id"))
        formats = optional_str("formats", data.get("formats")) or ""
        self.formats = [name for name in formats.split(",") if name]
        self.extra = {k: v for k, v in data.items() if k not in self._KNOWN}

    def to_dict(self, now: float) -> dict[str, Any]:
        """The JSON object to store; keys without a value are left out as the contract says."""
        data = self._common(now)
        if self.builder is not None:
            data["builder"] = self.builder
        if self.builder_id is not None:
            data["builder_id"] = self.builder_id
        if self.formats:
            data["formats"] = ",".join(sorted(self.formats))
        return data


class ImageUpload(_ImageRecord):
    """One upload of a build, ``.../builds/<build>/providers/<provider>/images/<id>``."""

    STATES: ClassVar[tuple[str, ...]] = states.UPLOAD_STATES
    _KNOWN: ClassVar[frozenset[str]] = frozenset(
        {
            *("state", "state_time", "external_id", "external_name", "format", "username", "python_path", "shell_type"),
            "rolled_back",
        }
    )

    def __init__(self, image_name: str, build_id: str, provider_name: str, id: str | None = None) -> None:
        super().__init__(id)
        self.image_name = image_name
        self.build_id = build_id
        self.provider_name = provider_name
        self.external_id: Any = None
        self.external_name: str | None = None
        self.format: str | None = None
        #: Was an older upload put in front of this one? Not part of the contract: other builders keep it or lose it.
        self.rolled_back = False

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
        self._load_common(data)
        self.external_id = data.get("external_id")
        self.external_name = optional_str("external_name", data.get("external_name"))
        self.format = optional_str("format", data.get("format"))
        self.rolled_back = data.get("rolled_back") is True
        self.extra = {k: v for k, v in data.items() if k not in self._KNOWN}

    def to_dict(self, now: float) -> dict[str, Any]:
        data = {
            **self._common(now),
            "external_id": self.external_id,
            "external_name": self.external_name,
            "format": self.format,
        }
        if self.rolled_back:
            data["rolled_back"] = True
        return data


@dataclass(frozen=True)
class ImageBuildRequest:
    """Somebody asked for a build.

    :param pending: it is still to be begun.
    :param state_time: of the request, seconds since the epoch.
    """

    image_name: str
    pending: bool
    state_time: float
