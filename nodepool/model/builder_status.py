# SPDX-License-Identifier: Apache-2.0
"""How far builders are with their builds and uploads, as they report it in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from nodepool.model.record import InvalidRecord, optional_number
from nodepool.quick_dataclass import dataclass


@dataclass(frozen=True)
class BuildStatus:
    """A build that runs.

    :param step: what diskimage-builder does just now, in its own words.
    :param estimate: how long the build may take in all, in seconds: as long as the last one; None = there was none.
    """

    step: str = ""
    estimate: float | None = None


@dataclass(frozen=True)
class UploadStatus:
    """An upload that runs. None = not reported.

    :param percent: 0 to 100.
    :param bytes_per_second: of late.
    :param size: of the file, in bytes.
    """

    percent: float | None = None
    bytes_per_second: float | None = None
    size: float | None = None


@dataclass(frozen=True)
class BuilderStatus:
    """What all builders report together.

    :param builds: ``<image>/<build id>`` -> progress.
    :param uploads: ``<image>/<build id>/<provider>/<upload id>`` -> progress.
    :param providers: host of a builder -> providers whose uploads it looks after. Older releases do not report them.
    """

    builds: Mapping[str, BuildStatus] = field(default_factory=dict)
    uploads: Mapping[str, UploadStatus] = field(default_factory=dict)
    providers: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of_records(cls, records: Iterable[Mapping[str, Any]]) -> BuilderStatus:
        """Read the status records of all builders; what cannot be read is left out."""
        builds: dict[str, BuildStatus] = {}
        uploads: dict[str, UploadStatus] = {}
        providers: dict[str, frozenset[str]] = {}
        for record in records:
            host, served = record.get("host"), record.get("providers")
            if isinstance(host, str) and isinstance(served, list):
                providers[host] = providers.get(host, frozenset()) | frozenset(map(str, served))
            for key, told in _entries(record, "builds"):
                step = told.get("step")
                builds[key] = BuildStatus(step if isinstance(step, str) else "", _number(told, "estimate"))
            for key, told in _entries(record, "uploads"):
                uploads[key] = UploadStatus(
                    _number(told, "percent"), _number(told, "bytes_per_second"), _number(told, "size")
                )
        return cls(builds, uploads, providers)

    def build(self, image: str, build_id: str) -> BuildStatus:
        """Progress of a build; one without anything when no builder tells of it."""
        return self.builds.get(f"{image}/{build_id}") or BuildStatus()

    def upload(self, image: str, build_id: str, provider: str, upload_id: str) -> UploadStatus:
        """Progress of an upload; one without anything when no builder tells of it."""
        return self.uploads.get(f"{image}/{build_id}/{provider}/{upload_id}") or UploadStatus()


def _entries(record: Mapping[str, Any], name: str) -> list[tuple[str, dict[str, Any]]]:
    entries = record.get(name)
    if not isinstance(entries, dict):
        return []
    return [(key, told) for key, told in entries.items() if isinstance(told, dict)]


def _number(told: Mapping[str, Any], name: str) -> float | None:
    try:
        return optional_number(name, told.get(name))
    except InvalidRecord:
        return None
