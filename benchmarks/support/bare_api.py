# SPDX-License-Identifier: Apache-2.0
"""What a cloud needs for servers when nobody but a loop of API calls asks for them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.functional.openstack.cloud import RealCloud

POLL_SECONDS = 0.25
DEADLINE_SECONDS = 600.0


class BareApi:
    """Plain JSON through openstacksdk's session: a thread for each creation, one list for all. Waits for no SSH."""

    def __init__(self, cloud: RealCloud) -> None:
        self._compute: Any = cloud.connection.compute
        found = cloud.connection.network.find_network(next(iter(cloud.networks()), ""))
        self._body = {
            "imageRef": cloud.connection.image.find_image(cloud.image()).id,
            "flavorRef": cloud.connection.compute.find_flavor(cloud.flavor()).id,
            "networks": [{"uuid": found.id}] if found else "auto",
        }

    def create(self, count: int) -> tuple[list[str], float]:
        """Makes servers at once; their ids, and seconds until the last one is ACTIVE."""
        start = time.monotonic()
        with ThreadPoolExecutor(count) as threads:
            ids = list(threads.map(self._create, range(count)))
        while not {key for key, status in self._list().items() if status == "ACTIVE"}.issuperset(ids):
            self._pause(start)
        return ids, time.monotonic() - start

    def delete(self, ids: list[str]) -> float:
        """Deletes servers at once; seconds until the last one is gone."""
        start = time.monotonic()
        with ThreadPoolExecutor(len(ids)) as threads:
            list(threads.map(lambda key: self._compute.delete(f"/servers/{key}"), ids))
        while not self._list().keys().isdisjoint(ids):
            self._pause(start)
        return time.monotonic() - start

    def _create(self, number: int) -> str:
        answer = self._compute.post("/servers", json={"server": {**self._body, "name": f"bare-{number}"}})
        answer.raise_for_status()
        return str(answer.json()["server"]["id"])

    def _list(self) -> dict[str, str]:
        servers = self._compute.get("/servers/detail").json()["servers"]
        return {server["id"]: server["status"] for server in servers}

    @staticmethod
    def _pause(start: float) -> None:
        if time.monotonic() - start > DEADLINE_SECONDS:
            raise RuntimeError(f"the cloud did not do it within {DEADLINE_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
