# SPDX-License-Identifier: Apache-2.0
"""`Watch`: tells what changes in one kind of objects, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.framework.rate import HeldTime, working_for
from nodepool.driver.kubernetes.client import EXPIRED, KubeClient, Object, refusal
from nodepool.exceptions import LaunchError
from nodepool.guard import Guard
from nodepool.plan.retries import Backoff

log = logging.getLogger("nodepool.driver.kubernetes.Watch")

#: From a watch that failed to the next one.
RETRY: Final = Backoff(0.25, 15.0)
#: The same for one that was refused: rights may be given later.
REFUSED_SECONDS: Final = 120.0
#: A watch that ends before this without having told anything is not usual: the next one waits.
SHORT_SECONDS: Final = 1.0


class Listener:
    """What is told, in the thread of the watch. Must not block for long."""

    def listed(self, kind: str, found: list[Object], started: float) -> None:
        """All objects, when the watch begins.

        :param started: when the list was begun, monotonic seconds.
        """

    def changed(self, kind: str, found: Object, gone: bool) -> None:
        """An object is new, changed, or gone."""

    def heard(self, kind: str) -> None:
        """The API gave a sign of life."""

    def refused(self, kind: str, error: LaunchError | None) -> None:
        """The API does not let us watch this kind; None = it does again."""


class Watch:
    """Watches one kind of objects from `start` to `stop`.

    Resumes where it was after each end, and lists all objects again only when the API has forgotten that point.

    :param kind: as the listener knows it.
    :param path: of the kind in the API.
    :param selector: of labels; ``fields``: of fields.
    :param held: waits while the watch waits for its turn to call the API.
    """

    def __init__(
        self,
        client: KubeClient,
        kind: str,
        path: str,
        selector: str,
        listener: Listener,
        fields: str = "",
        held: tuple[HeldTime, ...] = (),
    ) -> None:
        self._client = client
        self._kind = kind
        self._path = path
        self._selector = selector
        self._fields = fields
        self._listener = listener
        self._held = held
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        #: Where to resume; "" = nowhere.
        self._version = ""
        self._refused = False
        #: Turns in a row that showed nothing, and failed, ended at once, or with a version that is too old.
        self._vain = 0
        #: Has the watch shown something in this turn?
        self._told = False

    def start(self) -> None:
        """Begin; does not block."""
        name = f"{self._client.provider}-watch-{self._kind}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End soon; the client must be closed, too."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for the end, after `stop`."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            pause = 0.0
            # Whatever it is, the thread goes on: all launches wait for it.
            text = "Provider %s: the watch of %s failed"
            with Guard(log, text, self._client.provider, self._path) as guard, working_for(self._held):
                pause = self.turn()
            if guard.error is not None:
                self._version = ""
                pause = RETRY.longest_seconds
            self._stopped.wait(pause)

    def turn(self) -> float:
        """List if need be, and watch until the stream ends; blocks. Returns the seconds until the next turn."""
        begun, self._told = monotonic(), False
        try:
            if not self._version:
                self._list()
            begun = monotonic()
            self._watch()
        except CloudRefused as error:
            return self._was_refused(error)
        except LaunchError as error:
            if self._stopped.is_set():
                return 0.0
            pause = self._in_vain(0)
            level = logging.DEBUG if self._vain == 1 else logging.WARNING
            log.log(level, "%s; watched again in %g s", error, pause)
            return pause
        if monotonic() - begun < SHORT_SECONDS and not self._told:
            return self._in_vain(1)
        self._vain = 0
        return 0.0

    def _in_vain(self, free: int) -> float:
        """Seconds until the next turn. :param free: so many turns in a row are in vain without a pause."""
        self._vain = 1 if self._told else self._vain + 1
        return RETRY.pause(self._vain - free) if self._vain > free else 0.0

    def _list(self) -> None:
        started = monotonic()
        found, self._version = self._client.list(self._path, self._selector, self._fields)
        self._listener.listed(self._kind, found, started)
        self._worked()

    def _watch(self) -> None:
        for event in self._client.watch(self._path, self._version, self._selector, self._fields):
            if self._stopped.is_set():
                return
            self._take(event)
            self._worked()

    def _take(self, event: Object) -> None:
        kind, found = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            head = f"Provider {self._client.provider}: WATCH {self._path}"
            # client-go takes one without a status for 500, too.
            status = int(found["code"]) if str(found.get("code")).isdecimal() else 500
            raise refusal(head, status, str(found.get("reason") or ""), str(found.get("message") or ""))
        version = (found.get("metadata") or {}).get("resourceVersion")
        if kind == "BOOKMARK":
            self._listener.heard(self._kind)
        elif kind in ("ADDED", "MODIFIED", "DELETED"):
            self._listener.changed(self._kind, found, gone=kind == "DELETED")
        # Only now: what a listener failed with is told again.
        self._version = str(version or self._version)
        self._told = True

    def _worked(self) -> None:
        if self._refused:
            self._refused = False
            self._listener.refused(self._kind, None)

    def _was_refused(self, error: CloudRefused) -> float:
        self._version = ""
        if error.status == EXPIRED:
            log.info("Provider %s: %s is listed again: %s", self._client.provider, self._path, error.said)
            return self._in_vain(1)
        if not self._refused:
            self._refused = True
            self._listener.refused(self._kind, error)
        return REFUSED_SECONDS
