# SPDX-License-Identifier: Apache-2.0
"""Volumes that Nova makes for our servers do not say whose they are. We write it into them (O-6, D-2).

A volume without it that stays behind is nobody's for ever. So what could not be written, because the cloud had an error
or the launcher died, is written later: with the next search for leaks, or before the server is deleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.openstack.api import VOLUME, Api
from nodepool.driver.openstack.views import Server
from nodepool.driver.statemachine import metadata
from nodepool.exceptions import LaunchError

log = logging.getLogger("nodepool.driver.openstack.volumes")

_KEYS: Final = (metadata.NODE_KEY, metadata.POOL_KEY, metadata.PROVIDER_KEY, metadata.INSTALLATION_KEY)


class VolumeMarks:
    """Of one provider. Thread-safe; ``_lock`` guards the tables.

    :param provider: its name.
    :param submit: does something in another thread.
    """

    def __init__(self, provider: str, api: Api, submit: Callable[[Callable[[], None]], object]) -> None:
        self._provider = provider
        self._api = api
        self._submit = submit
        self._lock = threading.Lock()
        #: What is to be written, by the id of the volume.
        self._open: dict[str, dict[str, str]] = {}
        self._marked: set[str] = set()

    @property
    def open(self) -> bool:
        """Is something not written yet?"""
        with self._lock:
            return bool(self._open)

    def begin(self, volume_ids: Iterable[str], mark: Mapping[str, str]) -> None:
        """Mark volumes that have just been made. Does not block."""
        new = self._note(volume_ids, mark)
        if new:
            self._submit(lambda: self._write(new))

    def mark(self, server: Server) -> None:
        """Mark the volume that a server boots from, unless that was done. Blocks; trouble is logged."""
        if server.boot_volume is not None and server.metadata.get(metadata.PROVIDER_KEY) == self._provider:
            mark = {key: server.metadata[key] for key in _KEYS if key in server.metadata}
            self._write(self._note([server.boot_volume], mark))

    def catch_up(self) -> None:
        """Write what could not be written so far. Blocks; trouble is logged."""
        with self._lock:
            waiting = list(self._open)
        self._write(waiting)

    def seen(self, marked: Collection[str], unmarked: Collection[str], servers: Iterable[Server]) -> None:
        """All volumes of the cloud were listed: marks those of our servers that nobody has marked. Blocks."""
        with self._lock:
            self._marked = set(marked)
        for server in servers:
            if server.boot_volume in unmarked:
                self.mark(server)

    def _note(self, volume_ids: Iterable[str], mark: Mapping[str, str]) -> list[str]:
        with self._lock:
            new = [volume_id for volume_id in volume_ids if volume_id not in self._marked]
            self._open.update({volume_id: dict(mark) for volume_id in new})
        return new

    def _write(self, volume_ids: Iterable[str]) -> None:
        for volume_id in volume_ids:
            with self._lock:
                mark = self._open.get(volume_id)
            if mark is None:
                continue
            try:
                if self._api.transport.has(VOLUME):
                    self._api.mark_volume(volume_id, mark)
            except CloudAway as error:
                log.warning("Provider %s: volume %s is marked as ours later: %s", self._provider, volume_id, error)
                continue
            except CloudNotFound:
                # Or the cloud does not know it yet.
                log.debug("Provider %s: there is no volume %s", self._provider, volume_id)
            except LaunchError as error:
                # Or the cloud is at work on it.
                log.warning("Provider %s: volume %s is not marked as ours: %s", self._provider, volume_id, error)
            else:
                with self._lock:
                    self._marked.add(volume_id)
            # What is not marked now the deletion of the server, or the search for leaks, marks.
            with self._lock:
                self._open.pop(volume_id, None)
