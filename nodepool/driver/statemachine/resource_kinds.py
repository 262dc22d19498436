# SPDX-License-Identifier: Apache-2.0
"""`ResourceKinds`: what can be left over in a cloud, kind by kind (rules D).

Each kind says how its things are listed. Whose they are, and whether somebody still wants them, the framework finds
out: it deletes what it has seen twice without a node or an upload. So a kind that cannot be listed in one sweep is not
taken for gone: what it has left is only deleted later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.statemachine.instance import Resource
from nodepool.driver.statemachine.metadata import PROVIDER_KEY
from nodepool.exceptions import LaunchError, RuntimeConfigurationException

log = logging.getLogger("nodepool.driver.statemachine.resources")

#: What cannot be listed is told so often.
_TOLD_SECONDS: Final = 3600.0

T = TypeVar("T", bound=Resource)


@dataclass(frozen=True)
class ResourceKind(Generic[T]):
    """Things of one kind.

    :param name: for the log; as a rule the ``type`` of the resources.
    :param found: all that may be ours; blocks, and raises what the client raises.
    :param idle_seconds: until the next list after one that showed nothing of the provider; 0 = in the next sweep. For
        what the configuration has no use for, but an earlier one may have left.
    :param vital: without its list there is no sweep, such as that of the instances; else the other kinds are swept all
        the same.
    """

    name: str
    found: Callable[[], Iterable[T]]
    idle_seconds: float = 0.0
    vital: bool = False


class ResourceKinds(Generic[T]):
    """The kinds of one provider. Called by one thread at a time; blocks.

    :param provider: its name, for the log.
    :param kinds: in the order in which things are deleted: what uses others comes before them.
    """

    def __init__(self, provider: str, kinds: Iterable[ResourceKind[T]], clock: Callable[[], float] = monotonic) -> None:
        self._provider = provider
        self._kinds = tuple(kinds)
        self._clock = clock
        self._due: dict[str, float] = {}
        self._repeats = Repeats(_TOLD_SECONDS)

    def all(self) -> Iterator[T]:
        """Everything that may be ours. Trouble with one kind does not hide the others, unless the kind is vital."""
        for kind in self._kinds:
            if self._due.get(kind.name, float("-inf")) <= self._clock():
                yield from self._list(kind)

    def _list(self, kind: ResourceKind[T]) -> list[T]:
        try:
            found = list(kind.found())
        except (LaunchError, RuntimeConfigurationException) as error:
            if kind.vital:
                raise
            if self._repeats.worth_saying(kind.name):
                log.warning("Provider %s: resources of kind %s cannot be listed: %s", self._provider, kind.name, error)
            return []
        self._repeats.over(kind.name)
        # What is there must be seen in two sweeps in a row.
        ours = any(resource.metadata.get(PROVIDER_KEY) == self._provider for resource in found)
        self._due[kind.name] = self._clock() + (0.0 if ours else kind.idle_seconds)
        return found
