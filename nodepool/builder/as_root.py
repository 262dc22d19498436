# SPDX-License-Identifier: Apache-2.0
"""Commands that only root may run. diskimage-builder becomes root with sudo. The clean-up after it needs root, too."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Sequence
from typing import Final

log = logging.getLogger("nodepool.builder.as_root")

#: Longest time of one command, in seconds. An unmount may wait for a disk.
COMMAND_SECONDS: Final = 30.0


def root_command(command: Sequence[str], user_id: int | None = None) -> list[str]:
    """The command as it has to be started: with sudo, which must not ask for a password, unless this is root.

    :param user_id: of this process; None = look.
    """
    effective = os.geteuid() if user_id is None else user_id
    return list(command) if effective == 0 else ["sudo", "-n", *command]


def run_as_root(*command: str, timeout: float = COMMAND_SECONDS) -> str:
    """Run a command; blocks. Returns what was wrong, also that it took too long; empty = nothing.

    :param timeout: seconds.
    """
    full = root_command(command)
    try:
        done = subprocess.run(
            full, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    else:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        problem = "" if done.returncode == 0 else said or f"exit code {done.returncode}"
    if problem:
        log.debug("%s: %s", " ".join(full), problem)
    return problem
