# SPDX-License-Identifier: Apache-2.0
"""Launchers that are stopped or killed in the middle of what they do, and those that share a provider."""

from __future__ import annotations

from functools import partial

import pytest

from tests.clouds.site import Site

#: A launcher that was killed holds its locks for that long.
SESSION_SECONDS = 4.0
#: Until all that is ordered is there, and the launcher has ended.
BOOT_SECONDS = 60.0
INSTALLATION = "/nodepool/installation"


def _asked_for(site: Site, before: int) -> bool:
    """Are there more creations than before?"""
    return site.cloud.calls("create") > before


def _until_ordered(site: Site, after: bool) -> str:
    """A creation is under way. ``after``: the instance is made."""
    site.cloud.fail("create", "hang", after=after, count=1, seconds=2.0)
    request = site.submit()
    site.wait("it is asked for", lambda: site.cloud.calls("create"))
    return request


def _until_boots(site: Site) -> str:
    site.cloud.boots_take(BOOT_SECONDS)
    request = site.submit()
    site.wait("it boots", site.cloud.instances)
    return request


def _until_served(site: Site) -> str:
    request = site.submit()
    site.fulfilled(request)
    return request


@pytest.mark.parametrize("state", ["requested", "ordered", "made", "booting", "ready"])
def test_stopped_during_a_launch(site: Site, state: str) -> None:
    """G-14, C-4: the next launcher serves the request; no instance is left, and no node has two."""
    reach = {
        "requested": lambda: site.submit(),
        "ordered": lambda: _until_ordered(site, after=False),
        "made": lambda: _until_ordered(site, after=True),
        "booting": lambda: _until_boots(site),
        "ready": lambda: _until_served(site),
    }
    site.launch()
    request = reach[state]()
    site.stop()
    site.cloud.heal()
    site.cloud.boots_take(0.1)
    site.launch()
    site.fulfilled(request, hurry=0.5)
    site.give_back(request)
    site.wait_empty(hurry=0.5)


@pytest.mark.parametrize("state", ["used", "asked-for", "accepted"])
def test_stopped_during_a_deletion(site: Site, state: str) -> None:
    """X-5: the next launcher goes on with it."""
    site.launch()
    request = site.submit()
    (node,) = site.fulfilled(request)
    if state == "asked-for":
        site.cloud.fail("delete", "hang", seconds=2.0)
    elif state == "accepted":
        site.cloud.stick_deletions(node)
    if state != "used":
        site.give_back(request)
        site.wait("it is deleted", lambda: site.cloud.calls("delete"))
    site.stop()
    if state == "used":
        site.give_back(request)
    site.cloud.heal()
    site.launch()
    site.wait("the launcher has looked", lambda: site.cloud.calls("list") or site.cloud.name == "kubernetes")
    if state == "accepted":
        site.cloud.release()
    site.wait_empty(hurry=0.5)
    assert site.cloud.made == 1


def test_killed_with_all_in_progress(site: Site) -> None:
    """F-1: a creation that reached the cloud, one that did not, a boot, a deletion, a node in use."""
    launcher = site.launch_process(SESSION_SECONDS)
    used, given_back = site.submit(), site.submit()
    (held,) = site.fulfilled(used)
    site.fulfilled(given_back)
    site.use(held)
    site.cloud.boots_take(BOOT_SECONDS)
    site.cloud.fail("delete", "hang", seconds=60.0)
    site.give_back(given_back)
    site.wait("one is deleted", lambda: site.cloud.calls("delete"))
    waiting = []
    for count, after in enumerate((False, True, None), site.cloud.calls("create")):
        if after is not None:
            site.cloud.fail("create", "hang", seconds=60.0, after=after, count=1)
        waiting.append(site.submit())
        site.wait("one is asked for", partial(_asked_for, site, count))
    launcher.kill()
    site.cloud.heal()
    site.cloud.boots_take(0.1)
    site.launch()
    site.fulfilled(*waiting, hurry=0.5)
    assert held in site.cloud.instances()
    assert (site.znodes.node(held) or {})["state"] == "in-use"
    site.give_back(used, *waiting)
    site.release(held)
    site.wait_empty(hurry=0.5)
    assert site.cloud.made <= 2 + 2 + 3


def test_two_launchers(site: Site) -> None:
    """They share a provider and its quota, serve all, and never have more than the cloud allows."""
    site.section["launch-retries"] = 1
    site.pool["max-servers"] = 3
    if site.cloud.name != "kubernetes":
        site.cloud.limit(4)
    site.launch()
    site.run(10, end_hurry=0.5)
    assert site.cloud.most_instances <= (6 if site.cloud.name == "kubernetes" else 4)


@pytest.mark.parametrize("how", ["killed", "stopped", "killed beside another one"])
def test_goes_on_with_launches(site: Site, how: str) -> None:
    """L-18: what was ordered is not ordered again."""
    if site.cloud.name == "kubernetes":
        pytest.skip("pods start in seconds: their launches are begun anew")
    launcher = None if how == "stopped" else site.launch_process(SESSION_SECONDS)
    if launcher is None:
        site.launch()
    site.cloud.boots_take(BOOT_SECONDS)
    requests = [site.submit(count) for count in (1, 1, 2, 3)]
    site.wait("they boot", lambda: len(site.cloud.instances()) == 7)
    before = {node["launcher"] for node in site.znodes.nodes().values()}
    if how == "killed beside another one":
        site.launch()
    if launcher is None:
        site.stop()
    else:
        launcher.kill()
    if how != "killed beside another one":
        site.launch()
    site.wait("it has taken them", lambda: before.isdisjoint(n["launcher"] for n in site.znodes.nodes().values()))
    site.fulfilled(*requests, hurry=0.5)
    site.give_back(*requests)
    site.wait_empty(hurry=0.5)
    assert site.cloud.made == 7


@pytest.mark.parametrize("restored", [True, False])
def test_lost_zookeeper(site: Site, restored: bool) -> None:
    """CM-8: ids of nodes begin anew. No cloud gives a node the instance, or the answer, of an earlier one with its id.

    ``restored``: with the id of the installation, and earlier instances are deleted first (how-to/lost-zookeeper).
    """
    if not restored and site.cloud.name in ("ibmvpc", "kubernetes"):
        pytest.skip("instances do not bear the id of the installation, or have no other name in the next attempt")
    # Where names are taken, the next attempt has another one.
    site.section["launch-retries"] = 1 if restored else 2
    site.launch()
    (before,) = site.fulfilled(site.submit())
    site.stop()
    earlier = site.znodes.kazoo.get(INSTALLATION)[0]
    site.znodes.kazoo.delete("/nodepool", recursive=True)
    if restored:
        site.znodes.kazoo.create(INSTALLATION, earlier, makepath=True)
    site.launch()
    if restored:
        site.wait("no earlier instance is left", lambda: not site.cloud.names(), hurry=1.0)
        # The last list that the launcher has may show it.
        listed = site.cloud.calls("list")
        site.wait("it is in no list", lambda: site.cloud.calls("list") > listed + 1, hurry=1.0)
    assert list(site.fulfilled(site.submit(), hurry=0.5)) == [before]
    assert (len(site.cloud.names()), site.cloud.made) == (1 if restored else 2, 2)
