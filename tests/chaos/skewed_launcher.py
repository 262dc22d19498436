# SPDX-License-Identifier: Apache-2.0
"""Our launcher with a wall clock that can be wrong: ``python -m tests.chaos.skewed_launcher FILE`` and its arguments.

``FILE`` holds how many seconds the clock is ahead, and can be changed meanwhile (`write_offset`). The monotonic clock
stays true, as on a machine whose time is set. Not with libfaketime: under its 0.9.10 ``time.sleep`` of Python fails.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

FORMAT = struct.Struct("=d")


def write_offset(file: Path, seconds: float) -> None:
    """Makes the clock of the launcher with this file wrong, from now on."""
    # In place: the launcher has the file mapped.
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(FORMAT.pack(seconds))


def skewed_clock(file: Path, true_clock: Callable[[], float]) -> Callable[[], float]:
    """A clock that is wrong by what the file says at that moment."""
    with file.open("rb") as opened:
        offset = mmap.mmap(opened.fileno(), FORMAT.size, prot=mmap.PROT_READ)

    def now() -> float:
        return true_clock() + float(FORMAT.unpack_from(offset)[0])

    return now


def main() -> int:
    """In the launcher's process."""
    # Before anything of ours, and with it libraries, is imported: they may keep the function.
    time.time = skewed_clock(Path(sys.argv[1]), time.time)
    from nodepool.cmd import launcher

    return launcher.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
