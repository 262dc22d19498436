# SPDX-License-Identifier: Apache-2.0
"""`InterruptedUpload`: what the next upload of a build must know to go on with one that was interrupted.

For clouds that cannot be asked for it, such as Cloud Storage, whose uploads have secret addresses. It is in a file
beside the image, which only the builder's user can read, and which the builder removes with the image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

log = logging.getLogger("nodepool.driver.framework.InterruptedUpload")

#: Last part of the name of each such file; the name of the image's file is its beginning.
SUFFIX: Final = "upload"
_FILE: Final = "file"


class InterruptedUpload:
    """Of one image file and one provider. All methods block for the file system, and raise nothing: without the file
    an upload begins anew.

    :param image: path of the file that is uploaded.
    :param provider: name.
    """

    def __init__(self, image: str | os.PathLike[str], provider: str) -> None:
        self._image = Path(image)
        # Names of providers may have any characters.
        mark = hashlib.sha256(provider.encode()).hexdigest()[:12]
        self.path = self._image.with_name(f"{self._image.name}.{mark}.{SUFFIX}")

    def read(self) -> dict[str, Any] | None:
        """What `write` wrote; None = nothing, or of a file that was another one."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            same = isinstance(found, dict) and found.pop(_FILE, None) == self._file()
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            log.warning("%s cannot be read, and the upload begins anew: %s", self.path, error)
            return None
        return found if same else None

    def write(self, state: Mapping[str, Any]) -> None:
        """Keep what JSON can hold, in place of what was kept."""
        partial = self.path.with_name(f"{self.path.stem}-new.{SUFFIX}")
        try:
            text = json.dumps({**state, _FILE: self._file()})
            with contextlib.suppress(FileNotFoundError):
                partial.unlink()
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            partial.replace(self.path)
        except OSError as error:
            log.warning("%s cannot be written: an upload that is interrupted will begin anew: %s", self.path, error)

    def remove(self) -> None:
        """There is nothing to go on with any more."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s cannot be removed: %s", self.path, error)

    def _file(self) -> list[int]:
        """Size and time of the image's file. Raises OSError."""
        found = os.stat(self._image)
        return [found.st_size, found.st_mtime_ns]
