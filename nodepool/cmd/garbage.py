# SPDX-License-Identifier: Apache-2.0
"""How often daemons and commands look for reference cycles."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

#: New objects that make the interpreter look at the young ones; 700 by default. One list of 300 servers has 10,000.
YOUNG_OBJECTS: Final = 10_000
#: The same for a command: only one that goes on for a while, such as ``nodepool list -w``, ever makes so many.
COMMAND_OBJECTS: Final = 100_000


def look_less_often() -> None:
    """What is there now is not looked at any more, and new objects less often. To be called when all is loaded.

    When it is called again, after a reload, what was there is looked at once more.

    Modules, configuration and the cache of ZooKeeper are 100,000 objects and more, which stay. Looking at them again
    and again was a tenth of the CPU of a burst of cloud nodes. Blocks for about 0.05 s for each 100,000.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    _, middle, old = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, middle, old)


@contextlib.contextmanager
def in_a_command() -> Iterator[None]:
    """Inside, young objects are looked at less often. The process is to end after that, without a last look.

    Both together are a sixth of the CPU of a command that reads thousands of records.
    """
    _, middle, old = gc.get_threshold()
    gc.set_threshold(COMMAND_OBJECTS, middle, old)
    try:
        yield
    finally:
        gc.freeze()
