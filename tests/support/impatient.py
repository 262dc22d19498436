# SPDX-License-Identifier: Apache-2.0
"""A daemon of ours with other constants: ``python -m tests.support.impatient PROGRAM MODULE.NAME=2.5... -- ARGUMENTS``.

For what it does only after a minute, e.g.: a test need not wait that long. PROGRAM is ``launcher`` or ``builder``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """In the daemon's process. :raises AttributeError: there is no such constant (any more)."""
    end = arguments.index("--")
    for assignment in arguments[1:end]:
        path, _, number = assignment.partition("=")
        module_name, _, name = path.rpartition(".")
        module = importlib.import_module(module_name)
        getattr(module, name)
        setattr(module, name, float(number))
    status: int = importlib.import_module(f"nodepool.cmd.{arguments[0]}").main(arguments[end + 1 :])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
