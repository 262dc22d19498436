# SPDX-License-Identifier: Apache-2.0
"""The table: a row is a released driver, a column is what it must do in our launcher."""

from __future__ import annotations

from tests.functional.released_drivers.site import Site


def test_configuration(site: Site) -> None:
    """``config-validate`` takes its configuration."""
    result = site.validate()
    assert result.status == 0, result.out + result.err


def test_start(running: Site) -> None:
    """A launcher starts with it, and its pool is registered."""
    assert "Traceback" not in running.log_of_start


def test_launch(launching: Site) -> None:
    """A request is fulfilled with a node that the cloud has."""
    node_id, node = launching.serve()
    cloud = launching.cloud
    assert (node["state"], node["provider"], node["pool"]) == ("ready", cloud.provider, cloud.pool)
    assert node["type"] == [cloud.label]
    assert node_id in cloud.machines()
    cloud.check_node(node)
    launching.give_back(node_id)


def test_delete(launching: Site) -> None:
    """A node that was used goes, and what the cloud had of it."""
    node_id, _ = launching.serve()
    launching.give_back(node_id)

    def gone() -> bool:
        launching.cloud.check_deleted(node_id)
        return True

    launching.wait("the cloud has nothing of it any more", gone)


def test_leaks(sweeping: Site) -> None:
    """What the cloud has of a node that nobody knows of goes; what is not ours stays."""
    cloud = sweeping.cloud
    made = cloud.leave()
    node_id, _ = sweeping.serve()
    sweeping.forget(node_id)
    if cloud.looks_at_start:
        sweeping.restart()

    def gone() -> bool:
        cloud.check_deleted(node_id)
        assert not made & cloud.left(), f"still there: {made & cloud.left()}"
        return True

    sweeping.wait("what was leaked is gone", gone)
