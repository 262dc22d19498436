# SPDX-License-Identifier: Apache-2.0
"""The simulated world: launchers, a client, a cloud and ZooKeeper in one process, and one who says whose turn it is.

Time goes on when nobody has anything to do, or when the schedule says so. The same setup and moves give the same run.
"""

from __future__ import annotations

import functools
import inspect
import logging
import random
import socket
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.statemachine import provider as statemachine
from nodepool.driver.statemachine.known import Patience
from nodepool.launcher.worker import Worker
from nodepool.model.request import NodeRequest
from nodepool.zk.protocol import Reply
from tests.model.baton import Baton, Job
from tests.model.connection import SESSION_SECONDS
from tests.model.invariants import Invariants
from tests.model.launcher import Launcher, ModelExecutor, ModelScheduler, Process, Turn
from tests.model.server import Server
from tests.model.zuul import Zuul

#: Everything has settled so long after the last fault (seconds of the world).
SETTLE_SECONDS = 60.0
#: More steps than any run needs: somebody goes round in circles.
MAX_STEPS = 60_000
#: Attempts that a launch has (the default of the driver).
LAUNCH_RETRIES = 3

#: Moves after which no node is left that nobody wants.
PEACEFUL = ("submit", "take", "release", "clock", "long_clock", "stall")


class Move(NamedTuple):
    """After so many steps something is done to the world.

    :param kind: name of a method of `World` that begins with ``do_``.
    """

    gap: int
    kind: str
    number: int = 0


@dataclass(frozen=True)
class Setup:
    """:param order: whose turn it is: 0 = who can go on first; else a seed."""

    launchers: int = 2
    max_servers: int = 2
    min_ready: int = 0
    tenant_limit: int | None = None
    order: int = 0
    sends_after_death: bool = True


class _Tracebacks(logging.Handler):
    """What would be a traceback in a launcher's log."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.DEBUG if world.trace else logging.ERROR)
        self._world = world
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._world.violation("traceback: " + self.format(record))
        elif self._world.trace:
            job = self._world.baton.current
            print(f"  {self._world.now:.1f} {job}: {self.format(record)}")


class World:
    """Use as a context manager: it takes the place of the clock, of random ids and of threads."""

    _current: ClassVar[World | None] = None
    _clouds: ClassVar[int] = 0

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
        self.launchers: list[Launcher] = []
        self.zuul: Zuul
        self.starting: Launcher | None = None
        self._gone: list[Process] = []
        self._jobs: list[Job] = []
        self._runners: dict[Job, object] = {}
        self._stalled: dict[str, int] = {}
        self._priorities: dict[str, float] = {}
        World._clouds += 1
        self.cloud_name = f"model-{World._clouds}"
        self.cloud = FakeCloud.get(self.cloud_name)
        self.invariants = Invariants(self)
        self.server.on_commit = self.invariants.committed

    @classmethod
    def current(cls) -> World:
        assert cls._current is not None
        return cls._current

    def __enter__(self) -> World:
        World._current = self
        self._patch = patch = pytest.MonkeyPatch()
        patch.setattr(time, "time", self._clock)
        patch.setattr(time, "monotonic", self._clock)
        for function, name in _clocked():
            patch.setattr(function, name, _with_clock(getattr(function, name), self._clock))
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=self.random.getrandbits(128), version=4))
        patch.setattr(socket, "getfqdn", self._hostname)
        patch.setattr(socket, "gethostname", self._hostname)
        patch.setattr(Reply, "wait", self._wait_for_reply)
        patch.setattr(Patience, "wait", self._wait_for_answer)
        patch.setattr(Worker, "start", lambda worker: None)
        patch.setattr(Worker, "is_alive", lambda worker: not worker.stopping)
        patch.setattr(statemachine, "Scheduler", ModelScheduler)
        patch.setattr(statemachine, "ThreadPoolExecutor", ModelExecutor)
        self._log = logging.getLogger("nodepool")
        self._log_before = (self._log.level, self._log.propagate, list(self._log.handlers))
        self._log.handlers = [_Tracebacks(self)]
        self._log.propagate = False
        self._log.setLevel(logging.DEBUG if self.trace else logging.ERROR)
        self.zuul = Zuul(self, "zuul")
        self.launchers = [Launcher(self, f"nl{number}") for number in range(self.setup.launchers)]
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for process in [*self.launchers, self.zuul]:
                process.die()
            self._gone += [*self.launchers, self.zuul]
            while self._jobs:
                self._run(self._jobs[0])
            self.baton.close()
        finally:
            self._patch.undo()
            self._log.level, self._log.propagate, self._log.handlers = self._log_before
            self._log.setLevel(self._log_before[0])
            FakeCloud.forget(self.cloud_name)
            World._current = None

    # -- in place of --

    def _clock(self) -> float:
        return self.now

    def _hostname(self, *_: str) -> str:
        job = self.baton.current
        owner = self.starting if job is None else job.owner
        return owner.name if isinstance(owner, Process) else "nobody"

    @staticmethod
    def _wait_for_reply(reply: Reply, timeout: float | None = None) -> bool:
        world = World.current()
        if reply._answered:
            return True
        return world.baton.wait(lambda: reply._answered, None if timeout is None else world.now + timeout)

    @staticmethod
    def _wait_for_answer(patience: Patience, condition: object, until: Callable[[], bool]) -> None:
        world = World.current()
        condition.release()  # type: ignore[attr-defined]
        try:
            world.baton.wait(until, world.now + 5.0)
        finally:
            condition.acquire()  # type: ignore[attr-defined]

    # -- who can do something --

    @property
    def processes(self) -> list[Process]:
        return [self.zuul, *self.launchers]

    def spawn(self, name: str, owner: Process, work: Callable[[], None]) -> Job:
        job = Job(name, owner, work)
        self._jobs.append(job)
        return job

    def kill_jobs(self, owner: Process) -> None:
        for job in self._jobs:
            if job.owner is owner:
                job.killed = True

    def turns(self) -> list[Turn]:
        found: list[Turn] = []
        for process in [*self.processes, *self._gone]:
            found += process.connection_turns()
        for job in self._jobs:
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
                self._jobs.remove(job)

    def step(self) -> bool:
        """One turn; False = nobody can do anything now."""
        turns = self.turns()
        if not turns:
            return False
        awake = [turn for turn in turns if self._stalled.get(turn[0], 0) <= self.steps] or turns
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
        for process in [*self.processes, *self._gone]:
            kazoo = process.kazoo
            if kazoo.session is not None and self.now >= kazoo.heard + SESSION_SECONDS:
                self.server.expire(kazoo.session)

    def _next_due(self) -> float:
        dues = [job.deadline for job in self._jobs if job.deadline is not None]
        for launcher in self.launchers:
            dues += launcher.dues()
        for process in [*self.processes, *self._gone]:
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

    # -- what can happen --

    def play(self, moves: Sequence[Move]) -> None:
        """Do what the moves say, put everything right, and check what is left over."""
        for move in moves:
            self.run(move.gap)
            if self.trace:
                print(f"--- {move}")
            self.may_spare |= move.kind not in PEACEFUL
            getattr(self, f"do_{move.kind}")(move.number)
        self.settle()

    def settle(self) -> None:
        """The end of all faults; everybody is served, and everything given back."""
        self._stalled.clear()
        for number, launcher in enumerate(self.launchers):
            launcher.frozen = False
            if launcher.dead:
                self.do_restart(number)
        self.server_away = False
        self.cloud.set(down=False, fail_launches=0, lost_answers=0, quota_errors=0)
        for _ in range(3):
            self.run_seconds(SETTLE_SECONDS / 3)
        for _ in range(40):
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

    def _launcher(self, number: int) -> Launcher:
        return self.launchers[number % len(self.launchers)]

    def do_submit(self, number: int) -> None:
        self.zuul.submit(1 + number % min(2, self.setup.max_servers), "tenant" if self.setup.tenant_limit else None)

    def do_take(self, _: int) -> None:
        self.zuul.take()

    def do_release(self, number: int) -> None:
        self.zuul.release(number)

    def do_cancel(self, number: int) -> None:
        self.zuul.cancel(number)

    def do_crash(self, number: int) -> None:
        self._launcher(number).die()

    def do_restart(self, number: int) -> None:
        old = self._launcher(number)
        old.die()
        self._gone.append(old)
        self.launchers[number % len(self.launchers)] = Launcher(self, old.name)

    def do_freeze(self, number: int) -> None:
        launcher = self._launcher(number)
        launcher.frozen = not launcher.frozen

    def do_zombie(self, number: int) -> None:
        """Frozen until its session is over, and then goes on."""
        launcher = self._launcher(number)
        launcher.frozen = True
        self.pass_time(SESSION_SECONDS + 1)
        self.run(100)
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
        old = self.zuul
        old.die()
        self._gone.append(old)
        self.zuul = Zuul(self, old.name)

    def do_clock(self, number: int) -> None:
        self.pass_time(0.1 * (1 + number % 50))

    def do_long_clock(self, number: int) -> None:
        self.run_seconds(5.0 * (1 + number % 8))

    def do_stall(self, number: int) -> None:
        """One of those that can go on now has to wait for a while."""
        turns = self.turns()
        if turns:
            self._stalled[turns[number % len(turns)][0]] = self.steps + 20 + 20 * (number % 20)

    def do_lost_create(self, _: int) -> None:
        self.create_faults += 1
        self.cloud.set(lost_answers=1)

    def do_failed_create(self, _: int) -> None:
        self.create_faults += 1
        self.cloud.set(fail_launches=1)

    def do_quota_error(self, _: int) -> None:
        self.cloud.set(quota_errors=1)

    def do_cloud_down(self, number: int) -> None:
        self.create_faults += LAUNCH_RETRIES
        self.cloud.set(down=number % 2 == 0)

    # -- findings --

    def violation(self, text: str) -> None:
        self.violations.append(f"step {self.steps}, {self.now:.1f}: {text}")

    def failed(self, request: NodeRequest) -> None:
        """A request failed: only after the attempts of its launch were used up."""
        if self.create_faults < LAUNCH_RETRIES:
            self.violation(f"request {request.id} failed, and nothing was wrong")


@functools.cache
def _clocked() -> list[tuple[Any, str]]:
    """Functions of ours that have a clock as the default of a parameter."""
    found: dict[Any, str] = {}
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("nodepool."):
            continue
        for owner in [module, *(value for value in vars(module).values() if isinstance(value, type))]:
            for function in vars(owner).values():
                for name in ("__defaults__", "__kwdefaults__"):
                    if inspect.isfunction(function) and _has_clock(getattr(function, name)):
                        found[function] = name
    return list(found.items())


_CLOCKS = (time.time, time.monotonic)


def _has_clock(defaults: Any) -> bool:
    values = defaults.values() if isinstance(defaults, dict) else defaults or ()
    return any(value is clock for value in values for clock in _CLOCKS)


def _with_clock(defaults: Any, clock: Callable[[], float]) -> Any:
    if isinstance(defaults, dict):
        return {name: clock if value in _CLOCKS else value for name, value in defaults.items()}
    return tuple(clock if any(value is old for old in _CLOCKS) else value for value in defaults)


class Violated(AssertionError):
    """An invariant does not hold."""

    def __init__(self, violations: Sequence[str]) -> None:
        super().__init__("\n".join(violations))


def replay(setup: Setup, *moves: Move, trace: bool = False) -> None:
    """One run. Raises `Violated`."""
    with World(setup, trace=trace) as made:
        made.play(moves)
