# SPDX-License-Identifier: Apache-2.0
"""`AwsResources`: what can be left over in a region, kind by kind (AW-20, rules D).

Each kind says how its things are listed and how one is deleted. Whose they are, and whether somebody still wants them,
the framework finds out: it deletes what it has seen twice without a node or an upload.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.statemachine import Resource
from nodepool.driver.statemachine.metadata import PROVIDER_KEY
from nodepool.exceptions import LaunchError

log = logging.getLogger("nodepool.driver.aws.resources")

INSTANCE: Final = "instance"
VOLUME: Final = "volume"

#: What cannot be listed is told so often.
_TOLD_SECONDS: Final = 3600.0


class AwsResource(Resource):
    """Something that says whose it is; ``id`` is that of AWS.

    :param name: "" = it has none.
    :param usable: see `nodepool.driver.statemachine.Resource`.
    """

    def __init__(self, metadata: Mapping[str, str], type: str, id: str, name: str = "", *, usable: bool = True) -> None:
        super().__init__(dict(metadata), type)
        self.id = id
        self.name = name
        self.usable = usable


@dataclass(frozen=True)
class ResourceKind:
    """Things of one kind.

    :param name: ``type`` of the resources.
    :param found: all that may be ours; blocks, and raises what the client raises.
    :param delete: one by its id; blocks. One that is gone already may raise NotFound.
    :param idle_seconds: until the next list after one that showed nothing of the provider; 0 = in the next sweep. For
        what the configuration has no use for, but an earlier one may have left.
    :param vital: without its list there is no sweep; else the other kinds are swept all the same.
    """

    name: str
    found: Callable[[], Iterable[AwsResource]]
    delete: Callable[[str], None]
    idle_seconds: float = 0.0
    vital: bool = False


class AwsResources:
    """The kinds of one provider. Called by one thread at a time; all methods block.

    :param provider: its name, for the log.
    :param kinds: in the order in which things are deleted: what uses others comes before them.
    """

    def __init__(self, provider: str, kinds: Iterable[ResourceKind], clock: Callable[[], float] = monotonic) -> None:
        self._provider = provider
        self._kinds = {kind.name: kind for kind in kinds}
        self._clock = clock
        self._due: dict[str, float] = {}
        self._repeats = Repeats(_TOLD_SECONDS)

    def all(self) -> Iterator[AwsResource]:
        """Everything that may be ours. Trouble with one kind does not hide the others, unless the kind is vital."""
        for kind in self._kinds.values():
            if self._due.get(kind.name, float("-inf")) <= self._clock():
                yield from self._list(kind)

    def delete(self, resource: AwsResource) -> None:
        """Delete a thing of `all`. Raises what the client raises."""
        self._kinds[resource.type].delete(resource.id)

    def _list(self, kind: ResourceKind) -> list[AwsResource]:
        try:
            found = list(kind.found())
        except LaunchError as error:
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
