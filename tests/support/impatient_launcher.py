# SPDX-License-Identifier: Apache-2.0
"""Our launcher with other constants: ``python -m tests.support.impatient_launcher MODULE.NAME=NUMBER... -- ARGUMENTS``.

For what a launcher does only after a minute, e.g.: a test need not wait that long.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence


def change_constant(assignment: str) -> None:
    """``package.module.NAME=2.5``. :raises AttributeError: there is no such constant (any more)."""
    path, _, number = assignment.partition("=")
    module_name, _, name = path.rpartition(".")
    module = importlib.import_module(module_name)
    getattr(module, name)
    setattr(module, name, float(number))


def main(arguments: Sequence[str]) -> int:
    """In the launcher's process."""
    end = arguments.index("--")
    for assignment in arguments[:end]:
        change_constant(assignment)
    from nodepool.cmd import launcher

    return launcher.main(arguments[end + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
