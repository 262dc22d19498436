# SPDX-License-Identifier: Apache-2.0
"""Faults of the machines that launchers run on: restarts one by one, a wrong clock, a full disk."""

from __future__ import annotations

import math
import resource
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from kazoo.exceptions import KazooException

from tests.chaos.schedule import Fault
from tests.chaos.world import World

CLOCK_SECONDS = 600.0
#: How long each launcher of a rolling restart may take to serve again before it is the next one's turn.
TURN_SECONDS = 10.0
LOOK_SECONDS = 0.1


class HostFaults:
    """A method for each kind; each blocks until the fault is over and returns what is worth a note.

    :param alone: keeps other faults away from a target, for example ``launcher-1``.
    """

    def __init__(self, world: World, alone: Callable[[str], AbstractContextManager[object]]) -> None:
        self._world = world
        self._alone = alone

    def rolling_restart(self, fault: Fault) -> str:
        """An upgrade: each launcher in turn is stopped in order and started; the next one when it serves."""
        statuses = []
        for number, launcher in enumerate(self._world.launchers):
            with self._alone(f"launcher-{number}"):
                statuses.append(launcher.stop(seconds=30))
                threading.Event().wait(fault.seconds)
                launcher.start()
                self._wait_until_it_serves(number)
        return f"exit statuses {statuses}"

    def _wait_until_it_serves(self, number: int) -> None:
        for _ in range(round(TURN_SECONDS / LOOK_SECONDS)):
            try:
                if self._world.serves(number):
                    return
            except KazooException as error:
                self._world.note(f"rolling restart: {error!r}")
            threading.Event().wait(LOOK_SECONDS)

    def clock(self, fault: Fault) -> str:
        """Somebody sets the time of one machine ten minutes off, and later right again; ``amount`` says which way."""
        assert fault.launcher is not None
        offset = math.copysign(CLOCK_SECONDS, fault.amount)
        self._world.set_clock(fault.launcher, offset)
        threading.Event().wait(fault.seconds)
        self._world.set_clock(fault.launcher, 0.0)
        return f"{offset:+g} s"

    def full_disk(self, fault: Fault) -> str:
        """No byte more fits into a launcher's log.

        A limit on the size of its files does it: each write fails with an error, as on a full disk. A small file system
        of its own would need a mount, which may not be allowed and could be left behind.
        """
        assert fault.launcher is not None
        launcher = self._world.launchers[fault.launcher]
        size = launcher.log_path.stat().st_size
        resource.prlimit(launcher.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        threading.Event().wait(fault.seconds)
        grown = launcher.log_path.stat().st_size - size
        resource.prlimit(launcher.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return f"grown by {grown} bytes"

    def ssh_down(self, fault: Fault) -> None:
        """No server and no static host can be reached over SSH."""
        self._world.sshd.stop()
        threading.Event().wait(fault.seconds)
        self._world.sshd.start()
