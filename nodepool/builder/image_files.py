# SPDX-License-Identifier: Apache-2.0
"""Files of builds below ``images-dir`` (rules B-10, R-9, R-15).

``<image>-<build id>.<format>`` is an image, with ``.md5`` and ``.sha256`` beside it, and with ``.<provider>.upload``
for each upload that can be taken up again; ``<image>-<build id>.d`` is the directory in which diskimage-builder tells
what it built. What a name says of image and build is all that there is to
know whose a file is.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodepool.builder.as_root import run_as_root
from nodepool.driver.framework.interrupted_upload import SUFFIX as UPLOAD_STATE

log = logging.getLogger("nodepool.builder.image_files")

BUILDER_ID_FILE: Final = "builder_id.txt"
#: Of the directory in which diskimage-builder tells what it built.
MANIFEST: Final = "d"
#: Checksum -> its number of hexadecimal digits.
CHECKSUMS: Final = {"md5": 32, "sha256": 64}
#: Ids of builds are 32 hexadecimal digits; old ones are numbers of ten digits.
_NAME: Final = re.compile(r"(?P<image>.+)-(?P<build_id>[0-9a-f]{32}|[0-9]{10})\.(?P<extension>[^/]+)")
#: A block in the answer of stat(2), whatever the file system's are.
_BLOCK_BYTES: Final = 512


@dataclass(frozen=True)
class BuildFile:
    """A file or directory of a build.

    :param extension: what follows the id: a format, a format with a checksum or with the state of an upload,
        `MANIFEST`, or something else.
    """

    path: Path
    image: str
    build_id: str
    extension: str

    @property
    def format(self) -> str | None:
        """Of an image; None: it is not one."""
        tail = self.extension.rpartition(".")[2]
        return None if self.extension == MANIFEST or tail in CHECKSUMS or tail == UPLOAD_STATE else self.extension

    @property
    def format_it_belongs_to(self) -> str | None:
        """Of an image, of a checksum or of the state of an upload; None: it belongs to the whole build."""
        head, _, tail = self.extension.rpartition(".")
        if tail == UPLOAD_STATE:
            # In between it says of which provider.
            head = head.rpartition(".")[0]
        return head if tail in (*CHECKSUMS, UPLOAD_STATE) and head else self.format


@dataclass(frozen=True)
class Checksums:
    """Of an image file; None: not there, or not whole (rule U-5)."""

    md5: str | None
    sha256: str | None


class ImageFiles:
    """The files in ``images-dir``. Everything blocks for the file system; any thread.

    :param directory: ``images-dir``.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def base(self, image: str, build_id: str) -> Path:
        """Path of all files of a build, without what follows the id."""
        return self.directory / f"{image}-{build_id}"

    def path(self, image: str, build_id: str, image_format: str) -> Path:
        """Of the image in a format, whether it is there or not."""
        return self.directory / f"{image}-{build_id}.{image_format}"

    def all(self) -> list[BuildFile]:
        """Whatever belongs to builds, by name. A directory that is not there has nothing."""
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []
        return list(self._files(names))

    def of_build(self, image: str, build_id: str) -> list[BuildFile]:
        """Whatever belongs to one build, by name."""
        return [file for file in self.all() if (file.image, file.build_id) == (image, build_id)]

    def formats(self, image: str, build_id: str) -> set[str]:
        """Formats of a build that are on this disk."""
        return {file.format for file in self.of_build(image, build_id) if file.format is not None}

    def builds(self) -> dict[tuple[str, str], list[BuildFile]]:
        """Image and id of each build with files -> its files."""
        found: dict[tuple[str, str], list[BuildFile]] = {}
        for file in self.all():
            found.setdefault((file.image, file.build_id), []).append(file)
        return found

    def formats_of_builds(self) -> dict[tuple[str, str], set[str]]:
        """Image and id of each build with files -> formats that are there.

        The image counts: very old builds of two images may share an id.
        """
        return {
            build: {file.format for file in files if file.format is not None} for build, files in self.builds().items()
        }

    def checksums(self, image: str, build_id: str, image_format: str) -> Checksums:
        """What the files beside an image say of it."""
        path = self.path(image, build_id, image_format)
        return Checksums(_read_checksum(path, "md5"), _read_checksum(path, "sha256"))

    def sizes(self, image: str, build_id: str) -> dict[str, int]:
        """Format -> bytes that its image takes on the disk."""
        files = self.of_build(image, build_id)
        return {file.format: allocated_bytes(file.path) for file in files if file.format is not None}

    def remove(self, image: str, build_id: str, formats: Collection[str] | None = None) -> list[Path]:
        """Remove files of a build. What cannot be removed is logged and stays.

        :param formats: only images of these formats with their checksums; None = everything.
        :return: what was removed.
        """
        return [
            file.path
            for file in self.of_build(image, build_id)
            if (formats is None or file.format_it_belongs_to in formats) and _remove(file.path)
        ]

    def free_bytes(self) -> int:
        """Space on the disk that this user may still fill."""
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize

    def builder_id(self) -> str:
        """Identity of the builder: made at its first start, and kept beside the files (rule B-10). Raises OSError."""
        path = self.directory / BUILDER_ID_FILE
        try:
            known = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            known = ""
        if known:
            return known
        self.directory.mkdir(parents=True, exist_ok=True)
        made = str(uuid.uuid4())
        partial = path.with_suffix(".new")
        partial.write_text(made, encoding="utf-8")
        partial.replace(path)
        return made

    def _files(self, names: Iterable[str]) -> Iterator[BuildFile]:
        for name in names:
            match = _NAME.fullmatch(name)
            if match is not None:
                yield BuildFile(self.directory / name, match["image"], match["build_id"], match["extension"])


def allocated_bytes(path: Path) -> int:
    """What a file takes on the disk; one that is gone takes nothing."""
    try:
        return path.lstat().st_blocks * _BLOCK_BYTES
    except FileNotFoundError:
        return 0


def _read_checksum(path: Path, kind: str) -> str | None:
    digits = CHECKSUMS[kind]
    try:
        text = path.with_name(f"{path.name}.{kind}").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    first = text.split(maxsplit=1)[0].lower() if text.strip() else ""
    return first if re.fullmatch(f"[0-9a-f]{{{digits}}}", first) else None


def _remove(path: Path) -> bool:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        # Of a build that was interrupted some files may be root's.
        problem = run_as_root("rm", "-rf", "--one-file-system", "--", str(path)) if os.geteuid() else str(error)
        if problem:
            log.error("Cannot remove %s: %s", path, problem)
            return False
    log.info("Removed %s", path)
    return True
