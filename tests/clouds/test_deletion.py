# SPDX-License-Identifier: Apache-2.0
"""Deletions that do not happen, and what is in a cloud although no node has it."""

from __future__ import annotations

import pytest

from tests.clouds.site import Site

OTHER_INSTALLATION = "fedcba9876543210"


@pytest.mark.parametrize("after", [True, False], ids=["done", "not-done"])
def test_deletion_whose_answer_is_lost(site: Site, after: bool) -> None:
    """X: it is asked for again until there is no instance."""
    kinds = ("500", "drop", "html", "503")
    site.launch()
    requests = [site.submit() for _ in kinds]
    site.fulfilled(*requests)
    site.cloud.fail("delete", *kinds, after=after, count=1)
    site.give_back(*requests)
    site.wait_empty(hurry=0.5)


def test_deletion_that_is_forgotten(site: Site) -> None:
    """A deletion that was accepted, and does not happen, is sent again."""
    if site.cloud.name == "kubernetes":
        pytest.skip("a cluster that has accepted a deletion remembers it")
    with site.served(3, end_hurry=1.0):
        site.cloud.forget_deletions(2)


def test_deletion_that_is_stuck(site: Site) -> None:
    """The node stays until its instance has ended, and others go meanwhile."""
    site.launch()
    first, second = site.submit(), site.submit()
    (stuck,) = site.fulfilled(first)
    site.fulfilled(second)
    site.cloud.stick_deletions(stuck)
    site.give_back(first)
    site.wait("it is deleted", lambda: (site.znodes.node(stuck) or {})["state"] == "deleting")
    site.give_back(second)
    site.wait("the other one goes", lambda: set(site.znodes.nodes()) <= {stuck} or site.cloud.name != "kubernetes")
    site.clock.pass_seconds(5.0)
    assert stuck in site.znodes.nodes()
    assert stuck in site.cloud.instances()
    site.cloud.release()
    site.wait_empty(hurry=0.5)


def test_instance_that_vanished_before(site: Site) -> None:
    """X-4: its node goes, and so do the others that are deleted together with it."""
    with site.served(3, end_hurry=0.5) as ((first, _), *_):
        site.cloud.vanish(first)


def test_lost_instance(site: Site) -> None:
    """An idle node whose instance vanished is deleted and made anew; one that is in use stays."""
    site.labels["small"] = {"min-ready": 1}
    site.pool["max-servers"] = 2
    site.launch()
    request = site.submit()
    (used,) = site.fulfilled(request)
    site.use(used)
    site.wait("one is ready", site.znodes.free_nodes)
    (idle,) = site.znodes.free_nodes()
    site.cloud.vanish(idle)
    site.cloud.vanish(used)
    site.wait("another one is ready", lambda: set(site.znodes.free_nodes()) - {idle}, hurry=2.0)
    assert (site.znodes.node(used) or {})["state"] == "in-use"


def test_leaks(site: Site) -> None:
    """D-2, D-8, D-10: what bears our marks and has no node goes; what another provider or installation made stays."""
    site.launch()
    request = site.submit()
    site.fulfilled(request)
    kept = set(site.cloud.instances().values())
    ours = site.znodes.installation_id()
    leaked = site.cloud.leak("cloud-a", ours)
    kept |= {site.cloud.leak("cloud-b", ours), site.cloud.leak("cloud-a", OTHER_INSTALLATION)}
    assert leaked not in kept
    site.wait("what was leaked is deleted", lambda: set(site.cloud.names()) == kept, hurry=1.0)
    site.clock.pass_seconds(120.0)
    site.give_back(request)
    site.wait("the node is deleted", lambda: not site.znodes.nodes(), hurry=1.0)
    assert len(set(site.cloud.names()) & kept) == 2
