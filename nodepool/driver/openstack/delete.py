# SPDX-License-Identifier: Apache-2.0
"""The deletion of one server: its floating IP is deleted first (O-5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.openstack.views import ERROR, Server
from nodepool.driver.statemachine.deletion_machine import DeletionMachine
from nodepool.exceptions import LaunchError

if TYPE_CHECKING:
    from nodepool.driver.openstack.cloud import OpenStackCloud


class ServerDeletion(DeletionMachine[Server]):
    """See `DeletionMachine`."""

    cloud: OpenStackCloud

    def before(self, record: Server | None) -> Callable[[], Any] | None:
        server_id, floating = self.external_id, self.cloud.floating
        if not floating.may_have(server_id, record):
            return None
        return lambda: floating.release(server_id, record)

    def begun(self, record: Server) -> bool:
        return record.deleting and record.status != ERROR

    def busy(self, error: LaunchError) -> bool:
        """Another operation on the server is under way."""
        return isinstance(error, CloudRefused) and error.status == 409
