# SPDX-License-Identifier: Apache-2.0
"""How Nova lists servers, for the provider's `Inventory` (O-8)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from nodepool.driver.openstack.errors import CloudRefused
from nodepool.driver.statemachine.inventory import ChangesNotListed

if TYPE_CHECKING:
    from nodepool.driver.openstack.api import Api
    from nodepool.driver.openstack.views import Server

#: Changes are asked for from so long before the latest one that was seen: services round to seconds, clocks differ.
OVERLAP: Final = timedelta(seconds=5)


def list_servers(api: Api, since: str | None) -> list[Server]:
    """All servers of the project (None), or those that changed since a time, deleted ones too. Blocks.

    :raises ChangesNotListed: the cloud refuses the second.
    """
    try:
        return api.servers(since)
    except CloudRefused as error:
        if since is None:
            raise
        raise ChangesNotListed(str(error)) from error


def changes_since(latest: str) -> str | None:
    """The time to ask for changes from; None when the latest time that was seen is none.

    :param latest: as Nova writes it.
    """
    try:
        when = datetime.fromisoformat(latest.replace("Z", "+00:00"))
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - OVERLAP).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
