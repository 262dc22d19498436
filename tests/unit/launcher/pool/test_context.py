# SPDX-License-Identifier: Apache-2.0
"""What a launcher gives to its pools."""

from __future__ import annotations

import pytest

from nodepool.launcher.pool.context import Sibling
from tests.support.local_launcher import fake_provider
from tests.unit.launcher.conftest import Still

pytestmark = pytest.mark.usefixtures("cloud")


def test_what_pools_get(still: Still, cloud_name: str) -> None:
    """It is the launcher's of now, not that of its start."""
    providers = [fake_provider(name, cloud=cloud_name) for name in ("one", "two")]
    launcher = still(providers, tenant_resource_limits=[{"tenant-name": "poor", "max-servers": 1}])
    context = launcher.nodepool._pool_context
    one, two = launcher.worker("one"), launcher.worker("two")
    siblings: list[Sibling] = [one, two]
    assert {pool.launcher_id for pool in context.siblings()} == {pool.launcher_id for pool in siblings}
    assert [pool.launcher_id for pool in context.siblings_of("two")] == [two.launcher_id]
    assert context.provider("one") is one.context.provider
    assert context.provider("three") is None
    assert context.tenant_limits().keys() == {"poor"}
    assert context.tenant_use("poor").quota["compute"]["instances"] == 0
    context.lock_dir_lingers("100-1")
    assert "100-1" in launcher.nodepool.deletion.current.lingering_lock_dirs
