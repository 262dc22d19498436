# SPDX-License-Identifier: Apache-2.0
"""Deletions of uploaded images in their clouds, in threads: a slow cloud delays no other (rules R-4, R-7, R-8)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from nodepool.builder import upload_names
from nodepool.builder.driver_errors import tell_error
from nodepool.builder.provider_threads import ProviderThreads
from nodepool.builder.upload_run import ProviderTable
from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.exceptions import BuilderError, ZKConflict, ZKLockException
from nodepool.guard import settle
from nodepool.metrics import leaks
from nodepool.model import states
from nodepool.plan.backoff import Backoff
from nodepool.plan.image_cleanup import DeleteUpload
from nodepool.zk.image_store import ImageStore

if TYPE_CHECKING:
    from nodepool.driver.interface import Provider

#: After deletions of one upload that failed in a row. An image may be in use for long.
BACKOFF: Final = Backoff(1.0, 60.0)

#: Image, build, provider, number.
_Key = tuple[str, str, str, str]


class CloudDeletions:
    """Any thread; nothing blocks. ``_lock`` guards the tables and is not held over I/O.

    :param threads: for calls of providers.
    :param on_end: called when a deletion has ended, in its thread; must not block.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        store: ImageStore,
        providers: ProviderTable,
        threads: ProviderThreads,
        log: logging.Logger,
        on_end: Callable[[], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._store = store
        self._providers = providers
        self.log = log
        self._on_end = on_end
        self._clock = clock
        self._lock = threading.Lock()
        self._threads = threads
        self._running: set[_Key] = set()
        #: Deletions that come later: how many failed in a row, and not before when.
        self._later: dict[_Key, tuple[int, float]] = {}

    @property
    def running(self) -> int:
        """Deletions that were begun and have not ended."""
        with self._lock:
            return len(self._running)

    def begin(self, verdict: DeleteUpload) -> float | None:
        """Delete an upload in the background, unless that runs already, has just failed, or its record stays a while.

        :return: seconds until its time comes; None = it runs.
        """
        key = _key(verdict)
        with self._lock:
            if key in self._running:
                return None
            wait_seconds = self._later.get(key, (0, 0.0))[1] - self._clock()
            if wait_seconds > 0:
                return wait_seconds
            self._running.add(key)
        if not self._threads.submit(verdict.provider, lambda: self._run(verdict)):
            # The builder stops.
            with self._lock:
                self._running.discard(key)
        return None

    def keep(self, uploads: Collection[_Key]) -> None:
        """Forget what was to come of uploads that are gone.

        One that somebody else has locked for a moment stays: builders would otherwise take turns without a pause.

        :param uploads: image, build, provider and number of all that are there.
        """
        with self._lock:
            self._later = {key: value for key, value in self._later.items() if key in uploads or key in self._running}

    # -- in a thread of the provider --

    def _run(self, verdict: DeleteUpload) -> None:
        key = _key(verdict)
        ended: Future[float] = Future()
        settle([ended], lambda: self._delete_unless_changed(verdict))
        error = ended.exception()
        stays_seconds = 0.0 if error is not None else ended.result()
        if error is not None and not self._threads.closed:
            # It is tried again, and keeps no other. At the end of the builder it is left to whoever comes next.
            tell_error(self.log, error, "%s stays for now", _shown(verdict))
        with self._lock:
            self._running.discard(key)
            if error is not None:
                failures = self._later.get(key, (0, 0.0))[0] + 1
                self._later[key] = failures, self._clock() + BACKOFF.pause(failures)
            elif stays_seconds > 0:
                self._later[key] = 0, self._clock() + stays_seconds
            else:
                self._later.pop(key, None)
        self._on_end()

    def _delete_unless_changed(self, verdict: DeleteUpload) -> float:
        try:
            return self._delete(verdict)
        except (ZKLockException, ZKConflict) as reason:
            self.log.debug("%s is left to the next look: %s", _shown(verdict), reason)
            return 0.0

    def _delete(self, verdict: DeleteUpload) -> float:
        """The lock is held all the time: nobody else deletes the same. Blocks; raises what the driver raises.

        :return: seconds for which the record stays; 0 = it is gone.
        """
        place = (verdict.image, verdict.build_id, verdict.provider, verdict.upload_id)
        with self._store.upload_id_lock(*place) as lock:
            record = None if verdict.record is None else verdict.record.copy()
            if record is not None and not self._store.upload_has_data(*place):
                # Another builder has just removed it.
                self._store.delete_upload(*place, under=lock)
                return 0.0
            if record is not None and record.state != states.DELETING:
                # Written with the version that was seen: what has changed since is judged again.
                record.state = states.DELETING
                self._store.store_upload(record)
            provider = self._providers.get(verdict.provider)
            if provider is None:
                raise BuilderError(f"provider {verdict.provider} does not run")
            self.log.info("Deleting %s: %s", _shown(verdict), verdict.reason)
            if verdict.find:
                self._delete_found(provider, verdict)
            elif record is not None:
                gateway.delete_image(provider, record.external_name or "", record.external_id)
            if verdict.stays_seconds <= 0:
                self._store.delete_upload(*place, under=lock)
            return verdict.stays_seconds

    def _delete_found(self, provider: Provider, verdict: DeleteUpload) -> None:
        """Delete what an upload left of which nobody knows the id (R-4, D-3)."""
        try:
            images = gateway.list_images(provider)
        except NotImplementedError:
            # How a driver says that it cannot list images. Nothing can be found then, now or later: the record goes.
            return
        for image in images:
            if upload_names.is_of_upload(image, verdict.provider, verdict.build_id, verdict.upload_id, verdict.record):
                self.log.warning("Deleting image %s, which %s has left", image.shown_id, _shown(verdict))
                gateway.delete_image(provider, image.name, image.id)
                leaks.report(verdict.provider, "images")


def _key(verdict: DeleteUpload) -> _Key:
    return verdict.image, verdict.build_id, verdict.provider, verdict.upload_id


def _shown(verdict: DeleteUpload) -> str:
    of_image = f"build {verdict.build_id} of image {verdict.image}"
    return f"upload {verdict.upload_id} of {of_image} to provider {verdict.provider}"
