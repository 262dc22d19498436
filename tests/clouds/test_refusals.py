# SPDX-License-Identifier: Apache-2.0
"""Creations that a cloud refuses: for want of capacity, for a quota, or because it will never do that."""

from __future__ import annotations

import pytest

from tests.clouds.site import Site


def test_no_capacity_in_a_zone(site: Site) -> None:
    """The next zone has the node, and no attempt is spent; the first one is left alone for a while."""
    if not site.cloud.zones:
        pytest.skip("the cloud chooses the place itself, or the driver chose one before the launch")
    site.section["launch-retries"] = 1
    first, second = site.cloud.zones
    site.cloud.choose_zones(site.section)
    site.cloud.no_room(first)
    site.launch()
    requests = [site.submit() for _ in range(3)]
    assert {node["az"] for node in site.fulfilled(*requests).values()} == {second}
    site.give_back(*requests)
    site.wait_empty(hurry=0.5)


def test_quota(site: Site) -> None:
    """Q, L-7: what is over the quota of the cloud waits, says for what, and is served later."""
    if site.cloud.name == "kubernetes":
        pytest.skip("a cluster has quotas of namespaces only")
    site.section["launch-retries"] = 1
    site.cloud.limit(2)
    site.launch()
    first = [site.submit() for _ in range(2)]
    site.fulfilled(*first)
    third = site.submit()
    site.wait("it waits", lambda: "quota" in site.command("explain", third))
    assert site.state(third) in ("requested", "pending")
    site.give_back(*first)
    site.serve_all([third, *[site.submit() for _ in range(3)]])
    site.wait_empty()
    assert site.cloud.most_instances == 2


def test_quota_that_others_use(site: Site) -> None:
    """Q: what others have in the same account counts; ours is what is left."""
    if site.cloud.name == "kubernetes":
        pytest.skip("a cluster has quotas of namespaces only")
    site.section["launch-retries"] = 1
    site.cloud.limit(3)
    for _ in range(2):
        site.cloud.leak("cloud-b", "")
    site.launch()
    site.serve_all([site.submit() for _ in range(3)], hurry=0.2)
    site.wait("none of ours is left", lambda: not site.znodes.nodes())
    assert site.cloud.most_instances == 1


def test_max_cores(site: Site) -> None:
    """Q: the limits of a pool are those of its own nodes."""
    if not site.cloud.cores:
        pytest.skip("its pools have no such limit")
    site.section["launch-retries"] = 1
    site.pool["max-cores"] = 2 * site.cloud.cores
    site.run(5)
    assert site.cloud.most_instances == 2


def test_creation_that_is_wrong(site: Site) -> None:
    """400: the cloud's words are in the log; the attempts are spent, and nothing is left."""
    site.section["launch-retries"] = 2
    site.cloud.fail("create", "400")
    site.launch()
    site.failed(site.submit(), hurry=0.2)
    site.wait_empty()
    assert site.cloud.calls("create") in (1, 2)
    site.cloud.heal()
    # Some drivers do not try a label again that the cloud called wrong.
    site.stop()
    site.run(1, hurry=0.5)
