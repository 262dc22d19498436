# SPDX-License-Identifier: Apache-2.0
"""Who uses a command, for records that say who changed something."""

from __future__ import annotations

import getpass
import os
import socket


def operator() -> str:
    """``<user>@<host>``; behind ``sudo`` the user who called it."""
    user = os.environ.get("SUDO_USER")
    if not user:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            # No entry in the password database, as in many containers.
            user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
