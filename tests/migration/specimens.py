# SPDX-License-Identifier: Apache-2.0
"""Nodes on hold, made by either side: the other one must see the same, and must leave them alone."""

from __future__ import annotations

from typing import Any

from kazoo.security import OPEN_ACL_UNSAFE

from tests.chaos.world import CHROOT, own_label
from tests.migration.site import LAUNCHERS, Kind, Site
from tests.support.pool_znodes import NODES
from tests.support.wait import wait_for
from tests.support.zuul_client import ZuulClient

#: It tells how long ago, so two looks differ.
AGE = "Age"


class Specimens:
    """Takes nodes as Zuul's autohold does."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._client = ZuulClient(site.zookeeper.tls_hosts(CHROOT), site.zookeeper.certificates, session_seconds=30)
        self._holds: list[Any] = []
        #: Node id -> its record when it was put on hold.
        self._records: dict[str, dict[str, Any] | None] = {}

    def start(self) -> None:
        self._client.start()

    def stop(self) -> None:
        self._client.stop()

    def take(self) -> None:
        """One node of each launcher that runs now."""
        for number in range(LAUNCHERS):
            request = self._client.submit_and_wait([own_label(number)])
            assert request.state == "fulfilled", f"request {request.id} is {request.state}"
            nodeset = self._client.accept(request)
            self._client.use(nodeset)
            self._holds.append(self._client.hold(nodeset))
            (node,) = nodeset.getNodes()
            self._records[node.id] = self._site.znodes.node_now(node.id)

    def changed(self) -> list[str]:
        """Held nodes that somebody has written, or that only some may change; a sentence each."""
        found = []
        for node_id, before in self._records.items():
            now = self._site.znodes.node_now(node_id)
            if now != before:
                found.append(f"held node {node_id} was changed: {before} is {now}")
            elif self._site.znodes.kazoo.get_acls(f"{NODES}/{node_id}")[0] != OPEN_ACL_UNSAFE:
                found.append(f"node {node_id} has access rules")
        return found

    def listed_differently(self) -> list[str]:
        """Both command lines must say the same of the held nodes; what is wrong, a sentence each."""
        tables = {kind: self._listed(kind) for kind in Kind}
        found = []
        if tables[Kind.OURS] != tables[Kind.RELEASED]:
            found.append(f"the command lines list different things: {tables}")
        if missing := set(self._records) - set(tables[Kind.OURS]):
            found.append(f"not listed: {sorted(missing)}")
        return found

    def release(self) -> None:
        """Deletes the hold requests, so that Zuul marks the nodes used. Blocks until they are gone."""
        for hold in self._holds:
            self._client.delete_hold(hold)
        wait_for("held nodes are gone", lambda: not set(self._records) & set(self._site.znodes.nodes()), 90)

    def _listed(self, kind: Kind) -> dict[str, dict[str, str]]:
        arguments = ["-c", str(self._site.config_of(0)), "list", "--detail"]
        answer = self._site.run_tool(arguments, kind)
        assert answer.returncode == 0, answer.stderr
        rows = {row["ID"]: row for row in rows_of(answer.stdout)}
        return {name: row for name, row in rows.items() if name in self._records and row.pop(AGE)}


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of an ASCII table, by the headers of its columns.

    :raises ValueError: a row has other columns than the header.
    """
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    header, *rows = [[cell.strip() for cell in cells] for cells in lines]
    return [dict(zip(header, cells, strict=True)) for cells in rows]
