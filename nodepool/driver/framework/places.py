# SPDX-License-Identifier: Apache-2.0
"""Which of the places of a label to try.

First places that had no capacity a while ago (`RestingPlaces`), then the choice that keeps the nodes of a request in
one zone (N-7), then labels that a provider cannot serve.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeGuard, TypeVar

from nodepool.clock import monotonic, wall_time
from nodepool.model.reasons import ReasonCode
from nodepool.model.status import LabelStatus

if TYPE_CHECKING:
    from logging import Logger, LoggerAdapter

    from nodepool.model.request import NodeRequest


# `RestingPlaces`: where a cloud had no capacity a while ago, so that the launches of all nodes leave it alone.
#
# A place is what a driver may choose among: a type or size, with a subnet or zone, and whether it is a spot instance.

P = TypeVar("P", bound=Hashable)

#: For so long a place without capacity is left alone.
REST_SECONDS: Final = 180.0


class RestingPlaces(Generic[P]):
    """Of one provider. Thread-safe, does not block; ``_lock`` guards the table."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rest_until: dict[P, float] = {}

    def awake(self, places: Sequence[P]) -> list[P]:
        """Places in order, but for those that rest. If all rest, the one that has rested longest.

        :param places: at least one.
        """
        with self._lock:
            now = self._clock()
            self._rest_until = {place: until for place, until in self._rest_until.items() if until > now}
            found = [place for place in places if place not in self._rest_until]
            return found or [min(places, key=self._rest_until.__getitem__)]

    def rests(self, place: P) -> bool:
        """Had it no capacity a while ago?"""
        with self._lock:
            return self._rest_until.get(place, 0.0) > self._clock()

    def try_another(
        self, places: list[P], request: NodeRequest | None, error: Exception, log: LoggerAdapter[Logger]
    ) -> bool:
        """The first of some places has no capacity: it is taken out, unless it is the only one. Is there another?

        :param request: of the node that was to be made there.
        """
        self.no_room_for(places[0], request)
        if len(places) == 1:
            return False
        log.info("No capacity for %s, trying %s: %s", places[0], places[1], error)
        del places[0]
        return True

    def no_room_for(self, place: P, request: NodeRequest | None) -> None:
        """The cloud has no capacity there for a node of a request."""
        self.no_room(place)

    def no_room(self, place: P) -> None:
        """The cloud said that it has no capacity there."""
        with self._lock:
            self._rest_until[place] = self._clock() + REST_SECONDS


class ZonePlace(Protocol):
    """A combination of type or size and zone. It is a value."""

    @property
    def zone(self) -> str | None:
        """None = the cloud chooses."""

    def __hash__(self) -> int: ...


Z = TypeVar("Z", bound=ZonePlace)


class ZonePlaces(RestingPlaces[Z]):
    """Of one provider: places that had no capacity a while ago, and where the nodes of each request are. Thread-safe,
    does not block.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(clock)
        self._requests = RequestZones()

    def to_try(self, places: Sequence[Z], request: NodeRequest | None, az: str | None) -> list[Z]:
        """Places in order, but for those that rest. If all rest, the one that has rested longest.

        What is in the zone of the other nodes of the request comes first.

        :param places: all that the label allows, at least one.
        :param az: the zone of a node that the request has already.
        """
        found = self.awake(places)
        wanted = az or None
        if wanted is None and self._requests.concerns(request):
            wanted = self._requests.choose(request.key, self.zone_of(found[0]))
        return found if wanted is None else sorted(found, key=lambda place: self.zone_of(place) != wanted)

    def zone_of(self, place: Z) -> str:
        """ "" = the cloud chooses."""
        return place.zone or ""

    def made(self, place: Z, request: NodeRequest | None) -> None:
        """A node of a request is there."""
        if self._requests.concerns(request):
            self._requests.made(request.key, self.zone_of(place))

    def no_room_for(self, place: Z, request: NodeRequest | None) -> None:
        """The cloud has no capacity there for a node of a request."""
        self.no_room(place)
        if self._requests.concerns(request):
            self._requests.no_room(request.key, self.zone_of(place))


# `RequestZones`: where the nodes of each request are made, for drivers that choose among several zones (N-7).

#: Requests that are remembered; those that are served are the latest ones.
MOST: Final = 1000


class RequestZones:
    """The zone of a request is that of its first node; another one as long as no node is there. Thread-safe.

    ``_lock`` guards the tables.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._zones: dict[str, str] = {}
        #: Requests that have nodes in their zone.
        self._made: set[str] = set()

    @staticmethod
    def concerns(request: NodeRequest | None) -> TypeGuard[NodeRequest]:
        """Does a request have several nodes?"""
        return request is not None and len(request.node_types) > 1

    def choose(self, request_id: str, zone: str) -> str:
        """The zone of a request; the given one if it has none yet."""
        with self._lock:
            found = self._zones.setdefault(request_id, zone)
            while len(self._zones) > MOST:
                oldest = next(iter(self._zones))
                del self._zones[oldest]
                self._made.discard(oldest)
            return found

    def made(self, request_id: str, zone: str) -> None:
        """A node of a request is in a zone: that of the others, too."""
        with self._lock:
            if request_id not in self._made:
                self._zones[request_id] = zone
                self._made.add(request_id)

    def no_room(self, request_id: str, zone: str) -> None:
        """A zone has no capacity for a node of a request. It is left, unless a node is there already."""
        with self._lock:
            if self._zones.get(request_id) == zone and request_id not in self._made:
                del self._zones[request_id]


# `BrokenLabels`: labels that a provider cannot serve, and why (rule Q-14).

#: What is told of a label whose cause the driver does not tell.
UNKNOWN: Final = LabelStatus(ReasonCode.LABEL_BROKEN.value, "the driver says that it can never work here")


class BrokenLabels:
    """Any thread may call. Each change is one operation on a dictionary.

    :param code: of the reason, the same for all of them.
    """

    def __init__(self, code: ReasonCode = ReasonCode.LABEL_BROKEN) -> None:
        self._code = code
        self._causes: dict[str, LabelStatus] = {}

    def add(self, label: str, error: BaseException | str) -> bool:
        """A label turned out to be broken. Returns whether that is news.

        :param error: the cause, and what corrects it.
        """
        text = str(error)
        before = self._causes.get(label)
        if before is None or before.text != text:
            since = wall_time() if before is None else before.since
            self._causes[label] = LabelStatus(self._code.value, text, since)
        return before is None

    def discard(self, label: str) -> bool:
        """A label works. Returns whether that is news."""
        return self._causes.pop(label, None) is not None

    def causes(self) -> dict[str, LabelStatus]:
        """Label -> why it is broken, and since when."""
        return dict(self._causes)
