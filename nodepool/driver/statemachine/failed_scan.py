# SPDX-License-Identifier: Apache-2.0
"""What is left to say of an instance that gave no host keys (rule L-16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodepool.driver.framework.class_checks import without_exit

if TYPE_CHECKING:
    from nodepool.driver.config import LabelSettings
    from nodepool.driver.statemachine.adapter import Adapter, Log


def tell(adapter: Adapter, label: LabelSettings, external_id: Any, log: Log) -> None:
    """Write the console to the log if the label wants it, and tell the adapter. Blocks for both.

    Neither may fail the launch in another way: no error is raised.
    """
    if getattr(label, "console_log", False):
        try:
            console = without_exit(lambda: adapter.getConsoleLog(label, external_id))
            if console:
                log.info("Console of instance %s:\n%s", external_id, console)
        except NotImplementedError:
            log.debug("The driver has no console log")
        except Exception as error:  # noqa: BLE001 - the launch failed for another reason
            log.warning("Console of instance %s cannot be read: %s", external_id, error)
    try:
        without_exit(lambda: adapter.notifyNodescanFailure(label, external_id))
    except NotImplementedError:
        log.debug("The driver does not want to know")
    except Exception:
        # Whatever a driver raises: the launch failed for another reason.
        log.exception("Error in the driver's notifyNodescanFailure")
