# SPDX-License-Identifier: Apache-2.0
"""`GceFacts`: what seldom changes: machine types and images (GC-4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudSetup
from nodepool.driver.framework.fact import Fact
from nodepool.exceptions import RuntimeConfigurationException

if TYPE_CHECKING:
    from nodepool.driver.gce.client import ComputeEngine
    from nodepool.driver.gce.config import GceLabel, GceProviderConfig
    from nodepool.driver.gce.types import MachineType

K = TypeVar("K")
T = TypeVar("T")

#: How long the newest image of a family is remembered: a new one is used within 5 minutes.
FAMILY_SECONDS: Final = 240.0
#: The same of a machine type, and of the lack of one.
TYPE_SECONDS: Final = 6 * 3600.0
NO_TYPE_SECONDS: Final = 600.0


class GceFacts:
    """Of one provider. Thread-safe; ``_lock`` guards the tables, and is not held while Google is asked."""

    def __init__(
        self, config: GceProviderConfig, client: ComputeEngine, clock: Callable[[], float] = monotonic
    ) -> None:
        self._config = config
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._images: dict[str, Fact[str]] = {}
        #: By zone and name; None = the zone does not have it.
        self._types: dict[tuple[str, str], Fact[MachineType | None]] = {}

    # -- machine types --

    def machine_type(self, zone: str, name: str) -> MachineType | None:
        """A machine type of a zone; None = it is not there. May block."""
        fact = self._of(self._types, (zone, name), lambda: self._ask_type(zone, name))
        found = fact.get(TYPE_SECONDS)
        return found if found is not None else fact.get(NO_TYPE_SECONDS)

    def type_somewhere(self, name: str) -> MachineType:
        """The same of the first zone that has it; may block.

        :raises RuntimeConfigurationException: none has.
        """
        for zone in self._config.zones:
            found = self.machine_type(zone, name)
            if found is not None:
                return found
        zones = ", ".join(self._config.zones)
        raise RuntimeConfigurationException(f"there is no machine type {name!r} in {zones}; correct instance-type")

    def known_type(self, zone: str, name: str) -> MachineType | None:
        """A machine type if it was asked for before. Does not block."""
        with self._lock:
            fact = self._types.get((zone, name))
        return None if fact is None else fact.known()

    def _ask_type(self, zone: str, name: str) -> MachineType | None:
        try:
            return self._client.machine_type(zone, name)
        except CloudNotFound:
            return None

    # -- images --

    def image_link(self, label: GceLabel, image_name: str | None) -> str:
        """What an instance of a label is made of; may block.

        :param image_name: of the upload; None = the label's cloud image.
        :raises CloudSetup: there is no such family.
        """
        if image_name is not None:
            return f"{self._client.project}/global/images/{image_name}"
        image = label.cloud_image
        assert image is not None
        if image.image_id:
            return image.image_id
        project, family = str(image.image_project), str(image.image_family)
        fact = self._of(self._images, image.name, lambda: self._newest(image.name, project, family))
        return fact.get(FAMILY_SECONDS)

    def forget_images(self) -> None:
        """Google refused a creation: look up again what it was made of."""
        with self._lock:
            self._images.clear()

    def _newest(self, name: str, project: str, family: str) -> str:
        try:
            return self._client.newest_image(project, family).link
        except CloudNotFound as error:
            text = f"{error}; correct image-project or image-family of cloud image {name!r}"
            raise CloudSetup(text, code=error.code, status=404) from error

    def _of(self, table: dict[K, Fact[T]], key: K, ask: Callable[[], T]) -> Fact[T]:
        with self._lock:
            fact = table.get(key)
            if fact is None:
                fact = table[key] = Fact(ask, self._clock)
            return fact
