# SPDX-License-Identifier: Apache-2.0
"""`LaunchTemplates`: the launch templates of fleets: made when they are needed, else removed (AW-9)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.driver.aws import fleet_spec as spec
from nodepool.driver.aws.errors import AwsNotFound
from nodepool.driver.aws.fleet_client import FleetClient
from nodepool.driver.framework.fact import Fact
from nodepool.driver.statemachine.metadata import of_installation

if TYPE_CHECKING:
    from nodepool.driver.aws.config import AwsLabel, AwsProviderConfig

log = logging.getLogger("nodepool.driver.aws.LaunchTemplates")

#: A younger template may be that of a launcher which has another configuration already.
SPARED: Final = timedelta(hours=1)
#: Templates are looked through so often, in seconds.
LOOK_SECONDS: Final = 3600.0


class LaunchTemplates:
    """Of one provider. Thread-safe; all methods block. ``_lock`` guards the table; it is not held during a call.

    :param clock: seconds since the epoch.
    """

    def __init__(self, config: AwsProviderConfig, client: FleetClient, clock: Callable[[], float] = wall_time) -> None:
        self._config = config
        self._client = client
        self._clock = clock
        self._tags = spec.template_tags(config.name)
        self._lock = threading.Lock()
        self._made: dict[str, Fact[None]] = {}

    def name_for(self, label: AwsLabel) -> str:
        """The name of a label's template, which is there then."""
        data = spec.template_data(label)
        name = spec.template_name(data, self._tags)
        with self._lock:
            made = self._made.get(name)
            if made is None:
                made = self._made[name] = Fact(lambda: self._client.create_template(name, data, self._all_tags()))
        made.get(float("inf"))
        return name

    def _all_tags(self) -> dict[str, str]:
        """The name does not have the installation: who makes the same template for another one finds it there."""
        return {**self._tags, **of_installation()}

    def forget(self) -> None:
        """One was not there: make them again."""
        with self._lock:
            self._made.clear()

    def remove_unused(self) -> None:
        """Delete those that no label needs."""
        needed = {
            spec.template_name(spec.template_data(label), self._tags)
            for pool in self._config.pools.values()
            for label in pool.labels.values()
            if label.fleet_types
        }
        old = datetime.fromtimestamp(self._clock(), UTC) - SPARED
        for template in self._client.templates(self._config.name):
            if template.name in needed or not template.name.startswith(spec.TEMPLATE_PREFIX):
                continue
            if template.created is None or template.created > old:
                continue
            log.info("Provider %s: deleting launch template %s: no label uses it", self._config.name, template.name)
            try:
                self._client.delete_template(template.id)
            except AwsNotFound as error:
                log.debug("It is gone already: %s", error)
