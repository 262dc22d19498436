# SPDX-License-Identifier: Apache-2.0
"""An inventory without a thread."""

from __future__ import annotations

import threading
from typing import TypeVar

from nodepool.driver.statemachine.inventory import Inventory, InventoryRecord

R = TypeVar("R", bound=InventoryRecord)


class QuietInventory(Inventory[R]):
    """Lists when the test calls `poll` or `refresh`."""

    def _start(self) -> threading.Thread | None:
        return None
