# SPDX-License-Identifier: Apache-2.0
"""A light flow of example jobs, so that pages and commands have something to show: until Ctrl-C."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kazoo.exceptions import NoNodeError

from demo_lib.errors import DemoError
from demo_lib.images import LABEL as OF_IMAGE
from demo_lib.zuul import Job, Zuul
from simulators.openstack.client import SimulatorClient

#: What the simulated cloud is like meanwhile: boots take seconds, and some of them fail.
KNOBS: Final = {"boot_seconds": [4.0, 12.0], "boots": [{"kind": "error", "rate": 0.07}]}
#: Requests and jobs at a time.
MOST_JOBS: Final = 18
#: Between two jobs in a busy and in a quiet time, and from one busy time to the next. A busy time wants more servers
#: of the cloud than its quota allows.
BUSY_SECONDS, QUIET_SECONDS, WAVE_SECONDS = 3.0, 12.0, 300.0
#: How long a job runs.
RUN_SECONDS: Final = (10.0, 45.0)
#: Of the jobs that end; their nodes stay for a person to look at, at most one job's at a time.
HELD_SHARE, HELD_SECONDS = 0.08, 120
UNBUILT: Final = "server"
JOBS: Final = (
    (Job("website", "site/pages", "check", "pages-build"), ["small"]),
    (Job("website", "site/pages", "gate", "pages-browser"), ["small", "large"]),
    (Job("website", "site/api", "check", "api-functional"), [UNBUILT]),
    (Job("website", "site/api", "gate", "api-two-nodes"), [UNBUILT, UNBUILT]),
    (Job("tools", "tools/compiler", "check", "compiler-unit"), [OF_IMAGE]),
    (Job("tools", "tools/compiler", "check", "compiler-lint"), ["small"]),
    (Job("tools", "tools/compiler", "periodic", "compiler-benchmark"), ["large"]),
    (Job("operations", "operations/deploy", "post", "deploy-staging"), [OF_IMAGE]),
)
#: A job whose label is misspelt, now and then: the request fails, and Zuul reports NODE_FAILURE.
MISSPELT, MISSPELT_SHARE = (Job("operations", "operations/deploy", "check", "deploy-dry-run"), ["virtaul"]), 0.02


@dataclass
class Run:
    """One job from its request to its end.

    :ivar ends: monotonic clock; 0 = it has no nodes yet.
    """

    job: Job
    request_id: str
    node_ids: list[str] = field(default_factory=list)
    ends: float = 0.0


class Traffic:
    """The jobs, which come in waves.

    :param with_image: there are nodes that boot from the image of our own.
    """

    def __init__(self, zuul: Zuul, cloud: SimulatorClient, with_image: bool) -> None:
        self._zuul = zuul
        self._with_image = with_image
        self._random = random.Random(4)
        self._runs: list[Run] = []
        self._begin = self._next = time.monotonic()
        self._held_until = 0.0
        cloud.change(**KNOBS)

    def step(self) -> None:
        """What is due now. Call it about once a second. Blocks shortly. Raises KazooException."""
        now = time.monotonic()
        if now >= self._next and len(self._runs) < MOST_JOBS:
            job, labels = MISSPELT if self._random.random() < MISSPELT_SHARE else self._random.choice(JOBS)
            self._runs.append(Run(job, self._zuul.submit(self._labels(labels), job)))
            quiet = (1 + math.cos(2 * math.pi * (now - self._begin) / WAVE_SECONDS + math.pi)) / 2
            self._next = now + BUSY_SECONDS + (QUIET_SECONDS - BUSY_SECONDS) * quiet
        self._runs = [run for run in self._runs if self._goes_on(run, now)]

    def _labels(self, labels: Sequence[str]) -> list[str]:
        return [UNBUILT if label == OF_IMAGE and not self._with_image else label for label in labels]

    def _goes_on(self, run: Run, now: float) -> bool:
        """One step of a job. It also ends when a person has deleted what it has."""
        try:
            if not run.node_ids:
                return self._begun(run, now)
            if now < run.ends:
                return True
            if now > self._held_until and self._random.random() < HELD_SHARE:
                self._held_until = now + 2 * HELD_SECONDS
                self._zuul.hold(run.node_ids, run.job, "a test fails now and then", HELD_SECONDS)
            else:
                self._zuul.give_back(run.node_ids)
        except (DemoError, NoNodeError):
            return False
        return False

    def _begun(self, run: Run, now: float) -> bool:
        """Does it still wait, or run? A request that failed is deleted, as Zuul does."""
        request = self._zuul.request(run.request_id)
        if request["state"] == "failed":
            self._zuul.forget(run.request_id)
            return False
        if request["state"] == "fulfilled":
            node_ids = [str(node_id) for node_id in request["nodes"]]
            self._zuul.accept(run.request_id, node_ids)
            self._zuul.use(node_ids, run.job)
            run.node_ids, run.ends = node_ids, now + self._random.uniform(*RUN_SECONDS)
        return True
