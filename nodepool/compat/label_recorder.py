# SPDX-License-Identifier: Apache-2.0
"""`nodepool.driver.LabelRecorder` and `nodepool.driver.DriverConfig` of 11.0.0."""

from __future__ import annotations

from nodepool.driver.config import DriverReference


class LabelRecorder:
    """Labels and the ids of nodes that have them, in the order in which they were added. For one thread."""

    def __init__(self) -> None:
        self._entries: list[tuple[str, str]] = []

    def add(self, label: str, node_id: str) -> None:
        """Note that a node has a label."""
        self._entries.append((label, node_id))

    def labels(self) -> list[str]:
        """The label of each node."""
        return [label for label, _ in self._entries]

    def pop(self, label: str) -> str:
        """Forget the first node with a label; returns its id. Raises KeyError: there is none."""
        for position, (known, node_id) in enumerate(self._entries):
            if known == label:
                del self._entries[position]
                return node_id
        raise KeyError(label)

    def removeNode(self, id: str) -> None:
        """Forget a node; one that is not known is fine."""
        self._entries = [entry for entry in self._entries if entry[1] != id]


class DriverConfig(DriverReference):
    """``provider_config.driver``, whose ``name`` is set afterwards."""

    def __init__(self) -> None:
        super().__init__("")
