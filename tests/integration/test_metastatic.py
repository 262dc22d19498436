# SPDX-License-Identifier: Apache-2.0
"""Launchers with a metastatic provider are killed again and again: what they leave is put right (F-1, T-3, T-8)."""

from __future__ import annotations

import random
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.command_line import CommandLine
from tests.support.launcher import OUR_COMMAND
from tests.support.launcher_config import MetastaticProvider, Provider, StaticHost, StaticProvider
from tests.support.pool_znodes import NODES, REQUESTS, PoolZnodes
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

LAB = StaticProvider([StaticHost(f"127.1.6.{number}", ["big"]) for number in range(1, 5)], name="lab")
SHARED = MetastaticProvider(["small"], "big", rules={"max-parallel-jobs": 3, "grace-time": 0})
#: So that a killed launcher's locks are gone soon.
SESSION_SECONDS = 2.0


class Jobs:
    """Clients in threads: each asks for nodes, uses them for a moment, and returns them.

    :ivar doubles: slots that were given to two clients.
    """

    def __init__(self, znodes: PoolZnodes, count: int) -> None:
        self.znodes = znodes
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._in_use: dict[tuple[str, int], str] = {}
        self.doubles: list[tuple[str, int]] = []
        self.done = 0
        self._threads = [threading.Thread(target=self._work, name=f"job-{number}") for number in range(count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, count: int) -> None:
        """Blocks until ``count`` more jobs are done."""
        enough = self.done + count
        wait_for(f"{count} more jobs", lambda: self.done >= enough, 120)

    def _work(self) -> None:
        while not self._ended.is_set():
            self._job(random.randint(1, 3))

    def _job(self, count: int) -> None:
        request_id = self.znodes.submit(["small"] * count)
        states = ("fulfilled", "failed")
        wait_for(f"{request_id} ends", lambda: self.znodes.request_state(request_id) in states, 120)
        request = self.znodes.request(request_id) or {}
        locks = [self.znodes.kazoo.Lock(f"{NODES}/{node_id}/lock") for node_id in request["nodes"]]
        for lock in locks:
            lock.acquire(timeout=30)
        self.znodes.delete_request(request_id)
        places = []
        for node_id in request["nodes"]:
            node = self.znodes.node(node_id) or {}
            places.append((node["interface_ip"], node["slot"]))
            self.znodes.change_node(node_id, state="in-use")
        with self._lock:
            self.doubles += [place for place in places if place in self._in_use]
            self._in_use.update(dict.fromkeys(places, request_id))
        self._ended.wait(0.05)
        with self._lock:
            for place in places:
                self._in_use.pop(place, None)
            self.done += 1
        for node_id, lock in zip(request["nodes"], locks, strict=True):
            self.znodes.change_node(node_id, state="used")
            lock.release()


@pytest.fixture
def jobs(znodes: PoolZnodes) -> Iterator[Jobs]:
    jobs = Jobs(znodes, 6)
    yield jobs
    jobs.stop()


@pytest.mark.parametrize("launchers", [1, 2])
def test_killed_again_and_again(workplace: Workplace, znodes: PoolZnodes, jobs: Jobs, launchers: int) -> None:
    """Whatever a launcher was doing: no slot is given twice, every host is free in the end, no request is left."""
    for _ in range(launchers):
        workplace.launch([LAB, SHARED], wait=False, session_seconds=SESSION_SECONDS)
    wait_for("the hosts are there", lambda: len(znodes.free_nodes()) == 4)
    jobs.start()
    for _ in range(6):
        jobs.wait_for_more(random.randint(3, 15))
        random.choice([launcher for launcher in workplace.launchers if launcher.running]).kill()
        workplace.launch([LAB, SHARED], wait=False, session_seconds=SESSION_SECONDS)
    all_is_well(jobs)


def test_stopped_past_its_session(workplace: Workplace, znodes: PoolZnodes, jobs: Jobs) -> None:
    """A launcher that wakes up after its session is gone gives out no slot that another one gave."""
    sleeper, _ = (workplace.launch([LAB, SHARED], wait=False, session_seconds=SESSION_SECONDS) for _ in range(2))
    wait_for("the hosts are there", lambda: len(znodes.free_nodes()) == 4)
    wait_for("both serve", lambda: len(znodes.pools()) == 4)
    jobs.start()
    for _ in range(3):
        jobs.wait_for_more(10)
        sleeper.send_signal(signal.SIGSTOP)
        wait_for("its session is gone", lambda: len(znodes.pools()) == 2)
        jobs.wait_for_more(10)
        sleeper.send_signal(signal.SIGCONT)
        wait_for("it is registered again", lambda: len(znodes.pools()) == 4)
    all_is_well(jobs)


@pytest.mark.parametrize("how", ["SIGTERM", "record"])
def test_a_drain_ends(workplace: Workplace, znodes: PoolZnodes, how: str) -> None:
    """MT-6, MT-8: its node waits for the only host, which somebody has; the next launcher serves the request."""
    providers: list[Provider] = [replace(LAB, hosts=LAB.hosts[:1]), SHARED]
    drained = workplace.launch(providers, command=[*OUR_COMMAND, "--drain"])
    command = CommandLine(drained.config_path)
    used = znodes.submit(["big"])
    znodes.fulfilled(used)
    waiting = znodes.submit(["small"])
    wait_for("a node waits for it", lambda: [i for i in znodes.children(REQUESTS) if i.startswith("100-")])
    if how == "record":
        assert command("drain", "launcher", socket.gethostname()).status == 0
    else:
        drained.send_signal(signal.SIGTERM)
    assert drained.wait(60) == 0
    assert znodes.request_state(waiting) == "requested"
    if how == "record":
        assert command("resume", "launcher", socket.gethostname()).status == 0
    workplace.launch(providers, wait=False)
    znodes.use_and_return(used)
    znodes.fulfilled(waiting)
    znodes.use_and_return(waiting)
    wait_for("nothing is left", lambda: not znodes.children(REQUESTS) and len(znodes.free_nodes()) == 1)


def all_is_well(jobs: Jobs) -> None:
    """Ends the jobs; no slot was given twice, and nothing is left."""
    jobs.stop()
    assert not jobs.doubles
    znodes = jobs.znodes
    wait_for("no request is left", lambda: not znodes.children(REQUESTS), 60)
    wait_for("every host is free, nothing else is there", lambda: len(znodes.free_nodes()) == len(znodes.nodes()) == 4)
