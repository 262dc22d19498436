# SPDX-License-Identifier: Apache-2.0
"""The simulated world: launchers, a client, a cloud and ZooKeeper in one process, and one who says whose turn it is.

Time goes on when nobody has anything to do, or when the schedule says so. The same setup and moves give the same run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from nodepool.guard import OnError
from nodepool.model.request import NodeRequest
from tests.model.baton import Baton, Job
from tests.model.cloud import FakeModelCloud, ModelCloud
from tests.model.connection import SESSION_SECONDS
from tests.model.daemon import Daemon
from tests.model.hosts import Hosts
from tests.model.invariants import Invariants
from tests.model.launcher import Launcher
from tests.model.layout import Layout
from tests.model.moves import LAUNCH_RETRIES, PEACEFUL, Moves
from tests.model.operator import Operator
from tests.model.patches import Tracebacks, take_over
from tests.model.process import Process, Turn
from tests.model.server import Server
from tests.model.setup import Move, Setup, Violated
from tests.model.zuul import Zuul

#: Everything has settled so long after the last fault (seconds of the world).
SETTLE_SECONDS = 60.0
#: So often it is asked at the end whether all are served, 3 s each: room is made once in five minutes (Q-9).
ROUNDS = 1200
#: More steps than any run needs: somebody goes round in circles.
MAX_STEPS = 60_000


class World:
    """Use as a context manager: it takes the place of the clock, of random ids and of threads."""

    _current: ClassVar[World | None] = None
    _clouds: ClassVar[int] = 0
    #: May be in a log with a traceback.
    expected_errors: ClassVar[tuple[type[Exception], ...]] = ()
    #: What can happen in it, and what must hold.
    moves_class: ClassVar[type[Moves]] = Moves
    invariants_class: ClassVar[type[Invariants]] = Invariants

    def __init__(self, setup: Setup, *, trace: bool = False) -> None:
        self.setup = setup
        self.trace = trace
        self.now = 1_000_000.0
        self.random = random.Random(setup.order)
        self.server = Server(lambda: self.now)
        self.server_away = False
        self.baton = Baton()
        self.steps = 0
        self.violations: list[str] = []
        self.create_faults = 0
        #: Was anything done that may leave more ready nodes than are wanted?
        self.may_spare = False
        self.layout = setup.layout()
        #: All that were in force.
        self.layouts = [self.layout]
        self.launchers: list[Daemon] = []
        self.zuul: Zuul
        #: The launcher that is being made.
        self.starting: Daemon | None = None
        #: Processes that have died, of which something may still be under way.
        self.gone: list[Process] = []
        #: Lanes that have to wait until a step.
        self.stalled: dict[str, int] = {}
        self.jobs: list[Job] = []
        self._runners: dict[Job, object] = {}
        self._priorities: dict[str, float] = {}
        World._clouds += 1
        self.cloud_name = f"model-{World._clouds}"
        self.cloud = self.make_cloud()
        self.hosts = Hosts(self)
        self.operator = Operator(self)
        self.moves = self.moves_class(self)
        self.invariants = self.invariants_class(self)
        self.server.on_commit = self.invariants.committed

    # -- what another world may have others of --

    def make_cloud(self) -> ModelCloud:
        return FakeModelCloud(self)

    def make_daemon(self, name: str) -> Daemon:
        return Launcher(self, name)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Take the place of more."""

    @classmethod
    def current(cls) -> World:
        assert cls._current is not None
        return cls._current

    def __enter__(self) -> World:
        World._current = self
        self._patch = pytest.MonkeyPatch()
        # Else all that follows in this process would fail for another reason: its clock stands still.
        with OnError(lambda _: self._patch.undo()):
            take_over(self, self._patch)
            self.patch(self._patch)
            self._log = Tracebacks(self)
            self.zuul = Zuul(self, "zuul")
            self.launchers = [self.make_daemon(f"nl{number}") for number in range(self.setup.launchers)]
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for process in [*self.launchers, self.zuul]:
                process.die()
            self.gone += [*self.launchers, self.zuul]
            while self.jobs:
                self._run(self.jobs[0])
            self.baton.close()
        finally:
            self._patch.undo()
            self._log.put_back()
            self.cloud.close()
            World._current = None

    # -- who can do something --

    @property
    def processes(self) -> list[Process]:
        return [self.zuul, *self.launchers]

    @property
    def owner(self) -> object:
        """Whose code runs now."""
        job = self.baton.current
        return self.starting if job is None else job.owner

    def spawn(self, name: str, owner: Process, work: Callable[[], None]) -> Job:
        job = Job(name, owner, work)
        self.jobs.append(job)
        return job

    def kill_jobs(self, owner: Process) -> None:
        for job in self.jobs:
            if job.owner is owner:
                job.killed = True

    def turns(self) -> list[Turn]:
        found: list[Turn] = []
        for process in [*self.processes, *self.gone]:
            found += process.connection_turns()
        for job in self.jobs:
            owner = job.owner
            assert isinstance(owner, Process)
            if (job.killed or not owner.frozen) and job.can_go_on(self.now):
                found.append((job.name, lambda j=job: self._run(j)))  # type: ignore[misc]
        for process in self.processes:
            found += process.turns()
        return found

    def _run(self, job: Job) -> None:
        try:
            self.baton.run(job, self._runners)  # type: ignore[arg-type]
        finally:
            if job.done:
                self.jobs.remove(job)

    def step(self) -> bool:
        """One turn; False = nobody can do anything now."""
        turns = self.turns()
        if not turns:
            return False
        awake = [turn for turn in turns if self.stalled.get(turn[0], 0) <= self.steps] or turns
        lane, act = self._choose(awake)
        if self.trace:
            print(f"{self.steps} {self.now:.1f} {lane}")
        self.steps += 1
        act()
        self.invariants.look()
        if self.steps > MAX_STEPS:
            self.violation(f"no end after {self.steps} steps")
            raise Violated(self.violations)
        if self.violations:
            raise Violated(self.violations)
        return True

    def _choose(self, turns: Sequence[Turn]) -> Turn:
        order = self.setup.order
        if order == 0:
            return turns[0]
        if order % 2:
            return self.random.choice(turns)
        # Priorities, and now and then somebody's goes down: finds what needs one party to be slow.
        for lane, _ in turns:
            if lane not in self._priorities:
                self._priorities[lane] = self.random.random()
        best = max(turns, key=lambda turn: self._priorities[turn[0]])
        if self.random.random() < 0.05:
            self._priorities[best[0]] = -self.random.random()
        return best

    # -- time --

    def pass_time(self, seconds: float) -> None:
        """Time goes on, whether or not somebody has something to do. Sessions that nobody keeps alive end."""
        self.now += seconds
        for process in self.processes:
            kazoo = process.kazoo
            beats = not (process.frozen or process.dead or kazoo.broken or self.server_away)
            if beats and kazoo.state == "CONNECTED" and kazoo.session is not None and kazoo.session.alive:
                kazoo.heartbeat()
        for process in [*self.processes, *self.gone]:
            kazoo = process.kazoo
            if kazoo.session is not None and self.now >= kazoo.heard + SESSION_SECONDS:
                self.server.expire(kazoo.session)

    def _next_due(self) -> float:
        dues = [job.deadline for job in self.jobs if job.deadline is not None]
        for launcher in self.launchers:
            dues += launcher.dues()
        for process in [*self.processes, *self.gone]:
            kazoo = process.kazoo
            if kazoo.session is not None and kazoo.session.alive:
                idle = process.frozen or process.dead or kazoo.broken or kazoo.state != "CONNECTED"
                if idle:
                    dues.append(kazoo.heard + SESSION_SECONDS)
        return min((due for due in dues if due > self.now), default=self.now + 1.0)

    def run(self, steps: int) -> None:
        """So many turns; time goes on when nobody has any, in steps of at most a second."""
        for _ in range(steps):
            if not self.step():
                self.pass_time(min(1.0, self._next_due() - self.now))

    def run_seconds(self, seconds: float) -> None:
        """Until nobody has anything to do at that time."""
        until = self.now + seconds
        while True:
            while self.step():
                pass
            if self.now >= until:
                return
            self.pass_time(min(self._next_due(), until) - self.now)

    # -- a whole run --

    def play(self, moves: Sequence[Move]) -> None:
        """Do what the moves say, put everything right, and check what is left over."""
        for move in moves:
            self.run(move.gap)
            if self.trace:
                print(f"--- {move}")
            self.may_spare |= move.kind not in PEACEFUL
            self.moves.do(move.kind, move.number)
        self.settle()

    def put_right(self) -> None:
        """The end of what was done to processes and to ZooKeeper."""
        self.stalled.clear()
        for number, launcher in enumerate(self.launchers):
            launcher.frozen = False
            if launcher.dead or launcher.stopping:
                self.moves.do_restart(number)
        self.server_away = False

    def settle(self) -> None:
        """The end of all faults; everybody is served, and everything given back."""
        self.put_right()
        self.cloud.heal()
        self.hosts.down.clear()
        self.operator.resume_all()
        self.configure(self.setup.layout())
        for number in range(3):
            self.run_seconds(SETTLE_SECONDS / 3)
            if number == 0 and self.setup.hosts:
                self.invariants.look_at_quarantined()
                self.zuul.end_quarantines()
        for _ in range(ROUNDS):
            self.zuul.take()
            self.run_seconds(1.0)
            for _ in range(len(self.zuul.held)):
                self.zuul.release(0)
            self.run_seconds(2.0)
            if not self.zuul.waiting and not self.zuul.held:
                break
        self.run_seconds(SETTLE_SECONDS)
        self.invariants.at_the_end()
        if self.violations:
            raise Violated(self.violations)

    def configure(self, layout: Layout) -> None:
        """Write another configuration file."""
        if layout != self.layout:
            self.layout = layout
            self.layouts.append(layout)

    # -- findings --

    def violation(self, text: str) -> None:
        self.violations.append(f"step {self.steps}, {self.now:.1f}: {text}")

    def failed(self, request: NodeRequest) -> None:
        """A request failed: only where nobody could serve it, or after the attempts of its launch were used up."""
        served = all(layout.can_serve(request.node_types) for layout in self.layouts)
        if served and self.create_faults < LAUNCH_RETRIES:
            self.violation(f"request {request.id} failed, and nothing was wrong")


def replay(setup: Setup, *moves: Move, kind: Callable[..., World] = World, trace: bool = False, **options: Any) -> None:
    """One run. Raises `Violated`.

    :param kind: of the world; ``options`` of it.
    """
    with kind(setup, trace=trace, **options) as made:
        made.play(moves)
