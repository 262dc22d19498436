# SPDX-License-Identifier: Apache-2.0
"""What can happen in a simulated world: what its client does, and what fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.connection import SESSION_SECONDS
from tests.model.daemon import Daemon
from tests.model.zuul import Zuul

if TYPE_CHECKING:
    from tests.model.world import World

#: Attempts that a launch has (the default of the driver).
LAUNCH_RETRIES = 3

#: Moves after which no node is left that nobody wants.
PEACEFUL = ("submit", "take", "release", "clock", "long_clock", "stall")


class Moves:
    """Each ``do_`` method is a move; ``number`` says which launcher, request, kind, ..."""

    def __init__(self, world: World) -> None:
        self._world = world

    def do(self, kind: str, number: int) -> None:
        getattr(self, f"do_{kind}")(number)

    def _launcher(self, number: int) -> Daemon:
        return self._world.launchers[number % len(self._world.launchers)]

    def do_submit(self, number: int) -> None:
        """Something that can be served, but for the faults: the client knows nothing of a changed configuration."""
        tenant = "tenant" if self._world.setup.tenant_limit else None
        self._world.zuul.submit(self._world.setup.layout().wish(number), tenant)

    def do_take(self, _: int) -> None:
        self._world.zuul.take()

    def do_release(self, number: int) -> None:
        self._world.zuul.release(number)

    def do_cancel(self, number: int) -> None:
        self._world.zuul.cancel(number)

    def do_crash(self, number: int) -> None:
        self._launcher(number).die()

    def do_stop(self, number: int) -> None:
        """In order; what comes after it finds the launcher in the middle of that, or gone."""
        self._launcher(number).stop()

    def do_restart(self, number: int) -> None:
        old = self._launcher(number)
        old.die()
        self._world.gone.append(old)
        self._world.launchers[number % len(self._world.launchers)] = self._world.make_daemon(old.name)

    def do_freeze(self, number: int) -> None:
        launcher = self._launcher(number)
        launcher.frozen = not launcher.frozen

    def do_zombie(self, number: int) -> None:
        """Frozen until its session is over, and then goes on."""
        launcher = self._launcher(number)
        launcher.frozen = True
        self._world.pass_time(SESSION_SECONDS + 1)
        self._world.run(100)
        launcher.frozen = False

    def do_cut(self, number: int) -> None:
        """The connection breaks; answers that are on their way are lost."""
        self._launcher(number).kazoo.cut()

    def do_serve_and_cut(self, number: int) -> None:
        """All that was sent is done; no answer arrives."""
        kazoo = self._launcher(number).kazoo
        while kazoo.outbox and kazoo.session is not None and kazoo.session.alive and kazoo.state == "CONNECTED":
            kazoo.serve()
        kazoo.cut()

    def do_kill_zuul(self, _: int) -> None:
        old = self._world.zuul
        old.die()
        self._world.gone.append(old)
        self._world.zuul = Zuul(self._world, old.name)

    def do_clock(self, number: int) -> None:
        self._world.pass_time(0.1 * (1 + number % 50))

    def do_long_clock(self, number: int) -> None:
        self._world.run_seconds(5.0 * (1 + number % 8))

    def do_stall(self, number: int) -> None:
        """One of those that can go on now has to wait for a while."""
        turns = self._world.turns()
        if turns:
            self._world.stalled[turns[number % len(turns)][0]] = self._world.steps + 20 + 20 * (number % 20)

    def do_lost_create(self, _: int) -> None:
        self._world.create_faults += 1
        self._world.cloud.lose_answer()

    def do_failed_create(self, _: int) -> None:
        self._world.create_faults += 1
        self._world.cloud.fail_creation()

    def do_quota_error(self, _: int) -> None:
        self._world.cloud.refuse_for_quota()

    def do_cloud_down(self, number: int) -> None:
        self._world.create_faults += LAUNCH_RETRIES
        self._world.cloud.set_away(number % 2 == 0)

    def do_host_down(self, number: int) -> None:
        """A host that does not answer, or answers again."""
        self._world.hosts.down ^= {f"host{number % max(1, self._world.setup.hosts)}"}

    def do_quarantine(self, number: int) -> None:
        """An operator takes a host out of service, or releases it."""
        self._world.zuul.quarantine(f"host{number % max(1, self._world.setup.hosts)}")

    def do_reload(self, number: int) -> None:
        """Another configuration; the launchers find it one after the other."""
        self._world.configure(self._world.setup.layout().changed(number))

    def do_reload_back(self, _: int) -> None:
        self._world.configure(self._world.setup.layout())

    def do_pause(self, number: int) -> None:
        """An operator takes something out of service."""
        self._world.operator.pause(number)

    def do_resume(self, _: int) -> None:
        self._world.operator.resume_all()
