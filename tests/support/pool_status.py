# SPDX-License-Identifier: Apache-2.0
"""What pools publish of themselves."""

from __future__ import annotations

from collections.abc import Callable

from kazoo.exceptions import NoNodeError

from nodepool.model.status import PoolStatus
from nodepool.zk import status
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for

POOLS = "/nodepool/status/pool"


def pool_statuses(znodes: PoolZnodes) -> list[PoolStatus]:
    """Of all pools that publish one now."""
    found = []
    for name in znodes.children(POOLS):
        try:
            found.append(PoolStatus.of_record(status.decode(znodes.kazoo.get(f"{POOLS}/{name}")[0])))
        except NoNodeError:
            continue
    return found


def pool_status(znodes: PoolZnodes, provider: str) -> PoolStatus | None:
    """Of the only pool of a provider."""
    found = [told for told in pool_statuses(znodes) if told.provider == provider]
    return found[0] if len(found) == 1 else None


def until(znodes: PoolZnodes, provider: str, is_there: Callable[[PoolStatus], bool]) -> PoolStatus:
    """Waits for a record of the only pool of a provider."""

    def look() -> list[PoolStatus]:
        told = pool_status(znodes, provider)
        return [told] if told is not None and is_there(told) else []

    return wait_for("the pool tells it", look)[0]
