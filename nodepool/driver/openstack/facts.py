# SPDX-License-Identifier: Apache-2.0
"""What seldom changes in a cloud: flavors, images, networks, zones. Asked for once in a while, and after a refusal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.openstack.errors import CloudNotFound
from nodepool.driver.openstack.views import Flavor, Image, Network
from nodepool.exceptions import LaunchNodepoolException
from nodepool.guard import OnError

if TYPE_CHECKING:
    from nodepool.driver.openstack.api import Api
    from nodepool.driver.openstack.config import CloudImage, OpenStackLabel

T = TypeVar("T")

#: How old an answer may be, in seconds.
MAX_AGE_SECONDS: Final = 600.0
#: How soon something is asked for again because what was looked for is not there (O-7).
MISSING_AGE_SECONDS: Final = 300.0
#: The same before a launch is refused for good: the answer must be from about now.
REFUSAL_AGE_SECONDS: Final = 10.0


class Fact(Generic[T]):
    """One answer of the cloud. Thread-safe; of those who ask at the same time one asks the cloud, the others wait.

    ``_lock`` guards the fields; it is not held while the cloud is asked.
    """

    def __init__(self, ask: Callable[[], T], clock: Callable[[], float] = monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: Future[T] | None = None
        self._asked_at = float("-inf")

    def get(self, max_age: float = MAX_AGE_SECONDS) -> T:
        """The answer, at most ``max_age`` seconds old; may block. Raises what the cloud's API raises."""
        with self._lock:
            answer = self._answer
            mine = answer is None or (answer.done() and self._clock() - self._asked_at > max_age)
            if mine:
                answer = self._begin()
        assert answer is not None
        return self._ask_for(answer) if mine else answer.result()

    def get_new(self) -> T:
        """The answer to a question that is asked from now on; may block for two of them. Raises what `get` does."""
        since = self._clock()
        while True:
            with self._lock:
                answer, new = self._answer, self._asked_at >= since
                mine = answer is None or (answer.done() and not new)
                if mine:
                    answer = self._begin()
            assert answer is not None
            if mine:
                return self._ask_for(answer)
            if new:
                return answer.result()
            # Of those who wait for the end of an older question one asks the next, for all of them.
            answer.exception()

    def _begin(self) -> Future[T]:
        answer = self._answer = Future()
        self._asked_at = self._clock()
        return answer

    def _ask_for(self, answer: Future[T]) -> T:
        with OnError(lambda error: self._failed(answer, error)):
            answer.set_result(self._ask())
        return answer.result()

    def _failed(self, answer: Future[T], error: BaseException) -> None:
        with self._lock:
            if self._answer is answer:
                self._answer = None
        answer.set_exception(error)

    def known(self, max_age: float = float("inf")) -> T | None:
        """The answer if there is one that is not too old. Does not block."""
        with self._lock:
            answer = self._answer
            old = self._clock() - self._asked_at > max_age
        if answer is None or old or not answer.done() or answer.exception() is not None:
            return None
        return answer.result()

    def clear(self) -> None:
        """Ask again next time."""
        with self._lock:
            self._answer = None


class Facts:
    """Facts about the cloud of one provider. All methods may block unless they say otherwise."""

    def __init__(self, provider: str, api: Api) -> None:
        self.provider = provider
        self._api = api
        self._lock = threading.Lock()
        self.flavors: Fact[list[Flavor]] = Fact(api.flavors)
        self.networks: Fact[list[Network] | None] = Fact(api.networks)
        self.zones: Fact[list[str]] = Fact(api.zones)
        #: Ids of networks that have a gateway.
        self.gateways: Fact[frozenset[str]] = Fact(api.networks_with_gateway)
        self._images: dict[str, Fact[Image | None]] = {}
        #: Flavors that are not listed, e.g. deleted ones of old servers.
        self._hidden_flavors: dict[str, Fact[Flavor | None]] = {}

    def clear(self) -> None:
        """Something that we believed in was refused (O-2). Does not block."""
        for fact in (self.flavors, self.networks, self.zones, self.gateways):
            fact.clear()
        with self._lock:
            self._images.clear()

    # -- flavors --

    def flavor_of(self, label: OpenStackLabel) -> Flavor:
        """The flavor of a label (O-1).

        :raises LaunchNodepoolException: there is none.
        """
        for max_age in (MAX_AGE_SECONDS, REFUSAL_AGE_SECONDS):
            flavor = choose_flavor(self.flavors.get(max_age), label.flavor_name, label.min_ram)
            if flavor is not None:
                return flavor
        raise LaunchNodepoolException(f"provider {self.provider}, label {label.name}: {missing_flavor(label)}")

    def flavor(self, flavor_id: str) -> Flavor | None:
        """A flavor by its id; None if nothing is known about it."""
        for flavor in self.flavors.get():
            if flavor.id == flavor_id:
                return flavor
        with self._lock:
            fact = self._hidden_flavors.setdefault(flavor_id, Fact(lambda: self._hidden_flavor(flavor_id)))
        return fact.get(24 * 3600)

    def _hidden_flavor(self, flavor_id: str) -> Flavor | None:
        try:
            return self._api.flavor(flavor_id)
        except CloudNotFound:
            return None

    # -- images --

    def image_id(self, image: CloudImage, max_missing_age: float = MISSING_AGE_SECONDS) -> str | None:
        """Id of a cloud image; None if there is none (O-7). One given by id is not looked for (O-10)."""
        if image.image_id:
            return image.image_id
        with self._lock:
            fact = self._images.setdefault(image.image_name, Fact(lambda: self._find_image(image.image_name)))
        found = fact.get() or fact.get(max_missing_age)
        return None if found is None else found.id

    def image_of(self, label: OpenStackLabel) -> str:
        """Id of the cloud image of a label. Raises LaunchNodepoolException."""
        assert label.cloud_image is not None
        found = self.image_id(label.cloud_image, REFUSAL_AGE_SECONDS)
        if found is None:
            raise LaunchNodepoolException(missing_image(self.provider, label))
        return found

    def _find_image(self, name: str) -> Image | None:
        usable = [image for image in self._api.images(name=name) if image.status == "active"]
        if usable:
            return usable[0]
        try:
            image = self._api.image(name)
        except CloudNotFound:
            return None
        return image if image.status == "active" else None

    # -- networks --

    def network_ids(self, label: OpenStackLabel) -> list[str]:
        """Ids of the networks of a label, in its order; without a network service names are taken for ids.

        :raises LaunchNodepoolException: there is no such network, or several have the name.
        """
        return [self._network_id(name, label) for name in label.networks]

    def _network_id(self, name: str, label: OpenStackLabel) -> str:
        for max_age in (MAX_AGE_SECONDS, REFUSAL_AGE_SECONDS):
            networks = self.networks.get(max_age)
            if networks is None:
                return name
            ids = [network.id for network in networks if network.id == name] or [
                network.id for network in networks if network.name == name
            ]
            if len(ids) == 1:
                return ids[0]
        trouble = f"has {len(ids)} networks named {name!r}; use ids in" if ids else f"has no network {name!r}; correct"
        raise LaunchNodepoolException(
            f"provider {self.provider}, label {label.name}: the cloud {trouble} networks of the label or its pool"
        )


def choose_flavor(flavors: list[Flavor], name: str | None, min_ram: int) -> Flavor | None:
    """The flavor for a label (O-1).

    :param min_ram: if given, the smallest flavor by (RAM, name) with so much and ``name`` in its name; else exactly it.
    """
    if min_ram or not name:
        ordered = sorted(flavors, key=lambda flavor: (flavor.ram, flavor.name))
        return next((f for f in ordered if f.ram >= min_ram and (not name or name in f.name)), None)
    exact = [flavor for flavor in flavors if flavor.name == name] or [f for f in flavors if f.id == name]
    return exact[0] if exact else None


def missing_flavor(label: OpenStackLabel) -> str:
    """What to tell about a label for which the cloud has no flavor."""
    named = f" {'with' if label.min_ram else 'named'} {label.flavor_name!r}" if label.flavor_name else ""
    named += " in its name and" if label.min_ram and label.flavor_name else ""
    size = f" with at least {label.min_ram} MiB" if label.min_ram else ""
    return f"the cloud has no flavor{named}{size}; correct flavor-name or min-ram, or create the flavor"


def missing_image(provider: str, label: OpenStackLabel) -> str:
    """What to tell about a label whose cloud image is not there."""
    image = label.cloud_image
    name = "" if image is None else image.image_name
    return (
        f"provider {provider}, label {label.name}: the cloud has no usable image {name!r}; "
        "correct cloud-image, or upload the image"
    )
