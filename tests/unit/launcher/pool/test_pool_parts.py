# SPDX-License-Identifier: Apache-2.0
"""The parts of a pool are made to work together: one queue, one desk, one account of the launches."""

from __future__ import annotations

import pytest

from nodepool.clock import wall_time
from nodepool.driver.fake.cloud import FakeCloud
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.unit.launcher.conftest import Still

pytestmark = pytest.mark.usefixtures("cloud")


def test_status_of_what_the_other_parts_do(still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """W-5, W-6: the status knows the launches of the handlers, and since when the oldest request in the queue waits."""
    launcher = still([fake_provider("one", cloud=cloud_name, pool_max_servers=2)])
    worker = launcher.worker()
    cloud.set(hang=True)
    before = wall_time()
    for _ in range(3):
        znodes.submit(["small", "small"])
    launcher.passes(worker, "two launches", lambda: worker.own_launches() == 2)
    launcher.passes(worker, "one waits", lambda: worker.status.make(wall_time()).waiting)
    status = worker.status.make(wall_time())
    assert status.launches.running == 2
    [waiting] = status.waiting
    assert waiting.oldest is not None
    assert before - 1 <= waiting.oldest <= wall_time()
    cloud.set(hang=False)
