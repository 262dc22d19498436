# SPDX-License-Identifier: Apache-2.0
"""What is left to say of an instance that gave no host keys (rule L-16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodepool.driver import gateway

if TYPE_CHECKING:
    from nodepool.driver.config import LabelSettings
    from nodepool.driver.statemachine.adapter import Adapter, Log


def tell(provider_name: str, adapter: Adapter, label: LabelSettings, external_id: Any, log: Log) -> None:
    """Write the console to the log if the label wants it, and tell the adapter. Blocks for both.

    Neither may fail the launch in another way: no error is raised.
    """
    if getattr(label, "console_log", False):
        console = gateway.get_console_log(provider_name, adapter, label, external_id)
        if console:
            log.info("Console of instance %s:\n%s", external_id, console)
    gateway.notify_nodescan_failure(provider_name, adapter, label, external_id)
