# SPDX-License-Identifier: Apache-2.0
"""`BatchTags`: gives instances that one call made for several nodes the tags of their own, off the way of launches.

Lists say which of them lack some: so it does not matter which launcher made them, and whether it is still there. Only
what runs is worth a call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.aws.client import Ec2
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.types import RUNNING, AwsRecord
from nodepool.driver.framework.batches import Batches
from nodepool.driver.statemachine import metadata
from nodepool.driver.statemachine.node_fields import hostname
from nodepool.exceptions import LaunchError

log = logging.getLogger("nodepool.driver.aws.BatchTags")

#: So long after its creation an instance gets its tags: what is used for seconds only needs none, and the calls of a
#: burst are made when it is over.
OWN_SECONDS: Final = 10.0
#: For so long the launcher that made an instance is the one that sets its tags.
OTHERS_SECONDS: Final = 60.0
#: Tags may be missing in lists for some seconds after they were set.
AGAIN_SECONDS: Final = 60.0


class BatchTags:
    """Of one provider. Thread-safe, does not block; ``_lock`` guards the tables.

    :param provider: its name.
    :param executor: makes the calls, one after the other.
    """

    def __init__(self, provider: str, client: Ec2, executor: Executor, clock: Callable[[], float] = monotonic) -> None:
        self._provider = provider
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        #: When it is the turn of an instance that lacks tags.
        self._due: dict[str, float] = {}
        self._wanted: dict[str, AwsRecord] = {}
        # The tags of each instance are others: one a call. Its volumes have the same.
        self._calls: Batches[str] = Batches(self._send, executor, 1)

    def made(self, records: Iterable[AwsRecord]) -> None:
        """This launcher made these."""
        with self._lock:
            due = self._clock() + OWN_SECONDS
            self._due.update({record.id: due for record in records})

    def seen(self, records: Sequence[AwsRecord]) -> None:
        """A list shows these, and no others."""
        lacking = [
            record for record in records if record.batched and metadata.node_id_of(record.metadata, self._provider)
        ]
        with self._lock:
            now = self._clock()
            listed = {record.id for record in lacking}
            self._due = {key: due for key, due in self._due.items() if key in listed or due > now - AGAIN_SECONDS}
            found = [record for record in lacking if self._is_due(record, now)]
            # Of a call that failed before its turn came something may be left.
            self._wanted = {key: record for key, record in self._wanted.items() if key in self._due}
            self._wanted.update({record.id: record for record in found})
        for record in found:
            self._calls.add(record.id)

    def _is_due(self, record: AwsRecord, now: float) -> bool:
        """Called with the lock. It is due again only after a while."""
        due = self._due.setdefault(record.id, now + OTHERS_SECONDS)
        if record.status != RUNNING or now < due:
            return False
        self._due[record.id] = now + AGAIN_SECONDS
        return True

    def _send(self, take: Callable[[], list[str]]) -> Mapping[str, Exception]:
        """One call; blocks. What fails is tried again when a later list shows that the tags are missing."""

        def wanted() -> tuple[list[str], dict[str, str]]:
            (record_id,) = take()
            with self._lock:
                record = self._wanted.pop(record_id, None)
            node_id = None if record is None else metadata.node_id_of(record.metadata, self._provider)
            if record is None or node_id is None:
                raise AwsNotFound(f"no list shows instance {record_id} any more", code="InvalidInstanceID.NotFound")
            return [record.id, *record.volume_ids], own_tags(node_id)

        try:
            self._client.tag(wanted)
        except AwsNotFound as error:
            log.debug("It is gone already: %s", error)
        except LaunchError as error:
            log.warning("Tags are set later: %s", error)
        return {}


def own_tags(node_id: str) -> dict[str, str]:
    """Tags that an instance has alone, see `nodepool.driver.aws.batch_tag`."""
    return {metadata.NODE_KEY: node_id, "Name": hostname(node_id)}
