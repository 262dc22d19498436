# SPDX-License-Identifier: Apache-2.0
"""What an installation has put where: so that the next one knows what an operator has changed since."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from install_lib.errors import InstallError

#: Owned by root: the daemons' user must not say what root removes.
PLACE: Final = "/usr/local/share/nodepool/install.json"


def digest(content: bytes) -> str:
    """A content, in short."""
    return hashlib.sha256(content).hexdigest()


@dataclass
class Record:
    """What was done. Paths are those of the machine, without the ``--root``.

    :param directory: link to the virtual environment. :param files: path -> digest of what was written there.
    :param offered: path of an edited file -> digest of the new one that was laid beside it.
    :param beside: path of an edited file -> where the new one was laid. :param links: path -> target.
    :param moved: path -> where that was put which stood in the way. :param made: directories, accounts.
    """

    directory: str = ""
    files: dict[str, str] = field(default_factory=dict)
    offered: dict[str, str] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    def note_made(self, what: str) -> None:
        """Remember a directory or an account that was not there before."""
        if what not in self.made:
            self.made.append(what)

    def save(self, path: Path) -> None:
        """Write it; a reader sees the old one or the new one."""
        text = json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(path.name + ".part")
        half.write_text(text, encoding="utf-8")
        half.replace(path)


def load(path: Path) -> Record:
    """The record of earlier runs; an empty one if there were none. :raises InstallError: the file is not one."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Record(**data)
    except FileNotFoundError:
        return Record()
    except (OSError, ValueError, TypeError) as error:
        raise InstallError(f"{path} cannot be read ({error}); remove it to go on as if for the first time") from error
