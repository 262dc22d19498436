# SPDX-License-Identifier: Apache-2.0
"""`AwsResources`: what can be left over in a region, kind by kind, and how one is deleted (AW-20)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.statemachine import Resource, ResourceKind, ResourceKinds

INSTANCE: Final = "instance"
VOLUME: Final = "volume"


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


@dataclass(frozen=True, kw_only=True)
class AwsKind(ResourceKind[AwsResource]):
    """Things of one kind; its name is their ``type``.

    :param delete: one by its id; blocks. One that is gone already may raise NotFound.
    """

    delete: Callable[[str], None]


class AwsResources(ResourceKinds[AwsResource]):
    """The kinds of one provider. Parameters as those of `ResourceKinds`."""

    def __init__(self, provider: str, kinds: Iterable[AwsKind], clock: Callable[[], float] = monotonic) -> None:
        rows = tuple(kinds)
        super().__init__(provider, rows, clock)
        self._deletions = {kind.name: kind.delete for kind in rows}

    def delete(self, resource: AwsResource) -> None:
        """Delete a thing of `all`. Raises what the client raises."""
        self._deletions[resource.type](resource.id)
