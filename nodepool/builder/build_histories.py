# SPDX-License-Identifier: Apache-2.0
"""Failed builds of each image, as this builder has seen them: its own, and those of others (rule B-13)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final

from nodepool.clock import wall_time
from nodepool.model.image_view import ImageView
from nodepool.plan.image_builds import BuildHistory, observe

#: Own failed builds of an image that are remembered by their ids. Their records are gone long before.
_REMEMBERED: Final = 100


class BuildHistories:
    """Shared by the build workers. Any thread, nothing blocks. ``_lock`` guards the rest.

    :param clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = wall_time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._histories: dict[str, BuildHistory] = {}
        #: Own failed builds: their records may be removed before, or after, they are seen as failed.
        self._own: dict[str, deque[str]] = {}

    def look(self, view: ImageView, settings: Hashable) -> BuildHistory:
        """What is known of an image after a look at it.

        :param settings: of the image in the configuration now.
        """
        with self._lock:
            before = self._histories.get(view.name, BuildHistory())
            before = replace(before, counted=before.counted | frozenset(self._own.get(view.name, ())))
            after = self._histories[view.name] = observe(before, view, settings, self._clock())
            return after

    def failed(self, image: str, build_id: str, created_zxid: int, settings: Hashable) -> None:
        """A build of this builder has failed.

        :param created_zxid: ZooKeeper's number of the change that made its record.
        :param settings: with which it was built.
        """
        with self._lock:
            own = self._own.setdefault(image, deque(maxlen=_REMEMBERED))
            before = self._histories.get(image, BuildHistory())
            # Somebody may have looked while its end was being stored.
            more = 0 if build_id in before.counted else 1
            own.append(build_id)
            self._histories[image] = replace(
                before,
                failures=before.failures + more,
                last_failure=self._clock(),
                last_begun_zxid=max(before.last_begun_zxid, created_zxid),
                settings=settings,
            )
