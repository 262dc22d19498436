# SPDX-License-Identifier: Apache-2.0
"""Our builder with other constants, as `tests.support.impatient_launcher`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.support.impatient_launcher import change_constant


def main(arguments: Sequence[str]) -> int:
    """In the builder's process."""
    end = arguments.index("--")
    for assignment in arguments[:end]:
        change_constant(assignment)
    from nodepool.cmd import builder

    return builder.main(arguments[end + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
