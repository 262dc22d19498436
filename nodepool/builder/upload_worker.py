# SPDX-License-Identifier: Apache-2.0
"""`UploadWorker`: a thread that uploads images, one after the other."""

from __future__ import annotations

import logging
from typing import Final

from nodepool import log_names
from nodepool.builder.upload_queue import UploadQueue
from nodepool.builder.upload_run import Outcome, UploadRun, UploadServices
from nodepool.runtime.worker import Worker
from nodepool.zk.client import ZooKeeperClient

#: Longest time between two looks; changes come as events.
IDLE_SECONDS: Final = 60.0


class UploadWorker(Worker):
    """Wake it when something of an image, the configuration or the providers has changed.

    A stop ends the running upload as soon as its driver reports progress. The builder does not wait longer for it than
    for other threads (U-11).

    :param number: of the worker in its builder, from 0.
    """

    error_text = "Error in an upload worker, going on"

    def __init__(self, number: int, client: ZooKeeperClient, queue: UploadQueue, services: UploadServices) -> None:
        log = logging.getLogger(log_names.upload_worker(number))
        super().__init__(f"UploadWorker-{number}", client, log, IDLE_SECONDS)
        self._queue = queue
        self._services = services

    def run_once(self) -> float | None:
        """Make the upload whose turn it is; blocks as long as it takes.

        :return: 0 after an upload: the configuration may have changed (U-7), and there may be others.
        """
        job, wait_seconds = self._queue.take()
        if job is None:
            return wait_seconds
        run = UploadRun(self._services, job, lambda: self.stopping, self.log)
        outcome: Outcome | None = None
        try:
            outcome = run.run()
        finally:
            if outcome is None:
                # Without a record the cloud had no part in it.
                outcome = Outcome.NOT_DUE if run.upload_id is None else Outcome.FAILED
            self._queue.ended(job, outcome, run.upload_id)
        return 0.0
