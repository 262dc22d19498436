# SPDX-License-Identifier: Apache-2.0
"""Clouds that are busy, broken, slow or late: nothing fails for it, no node gets two instances, and none is lost."""

from __future__ import annotations

import socket

import pytest

from tests.clouds.site import Site


def test_creation_that_is_put_off(site: Site) -> None:
    """429 and its like, with Retry-After or without: the call is made later, and no attempt is spent."""
    if site.cloud.name != "kubernetes":
        site.section["launch-retries"] = 1
    site.cloud.fail("create", *site.cloud.put_offs, count=2)
    site.run(4)
    assert site.cloud.made == 4


@pytest.mark.parametrize("what", ["list", "delete", "*"])
def test_calls_that_are_put_off(site: Site, what: str) -> None:
    """The same of other calls."""
    site.section["launch-retries"] = 1 if what != "*" else 4
    site.cloud.fail(what, *site.cloud.put_offs, "503", "500", count=2)
    site.run(3, end_hurry=0.5)


def test_creation_that_fails(site: Site) -> None:
    """Nothing was made: it is made once."""
    kinds = ("500", "503", "drop", "html", "hang")
    site.launch()
    for kind in kinds:
        site.cloud.fail("create", kind, count=1, seconds=0.3)
        site.serve_all([site.submit()], hurry=0.2)
    site.wait_empty()
    assert site.cloud.made == len(kinds)


@pytest.mark.parametrize("late", [False, True], ids=["", "late-lists"])
def test_creation_whose_answer_is_lost(site: Site, late: bool) -> None:
    """It was made: it is found, and not made again."""
    kinds = ("500", "504", "drop", "html", "truncated", "hang")
    site.section["launch-retries"] = 1
    if late:
        site.cloud.lists_are_late()
    site.launch()
    requests = []
    for kind in kinds:
        site.cloud.fail("create", kind, after=True, count=1, seconds=0.3)
        requests.append(site.submit())
        site.fulfilled(*requests)
    site.give_back(*requests)
    site.wait_empty()
    assert site.cloud.made == len(kinds)


@pytest.mark.parametrize("kinds", [("portal", "html"), ("garbage", "odd", "truncated")], ids="-".join)
def test_answers_that_are_none(site: Site, kinds: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    """A proxy, a sign-in page, or a connection that ends in the middle."""
    site.section["launch-retries"] = 4
    site.cloud.fail(("create", "list", "delete"), *kinds, after=True, count=1)
    site.run(3, hurry=0.2, end_hurry=0.2)
    assert site.cloud.made == 3
    assert "Traceback" not in caplog.text


def test_answer_that_is_huge(site: Site) -> None:
    """It is not read to its end."""
    site.cloud.fail("list", "huge", count=1, size=70_000_000)
    site.run(1, hurry=0.2, end_hurry=0.2)


def test_cloud_that_is_away(site: Site) -> None:
    """F-5: nothing is declined or fails for it, and all goes on when the cloud is back."""
    site.launch()
    first = site.submit()
    site.fulfilled(first)
    site.cloud.fail("*", "503")
    second = site.submit()
    site.give_back(first)
    site.clock.pass_seconds(1.0)
    site.wait("its trouble is known", lambda: "circuit" in site.command("explain", "cloud-a"), hurry=1.0)
    assert site.state(second) in ("requested", "pending")
    assert len(site.cloud.instances()) == 1
    site.cloud.heal()
    site.fulfilled(second, hurry=0.5)
    site.give_back(second)
    site.wait_empty(hurry=0.5)
    assert site.cloud.made == 2


def test_nothing_listens(site: Site) -> None:
    """The same when the cloud cannot be reached at all, also when the launcher starts."""
    site.cloud.simulator.stop()
    site.launch()
    request = site.submit()
    site.wait("its trouble is known", lambda: "cloud-a" in site.command("explain", "cloud-a"))
    assert site.state(request) in ("requested", "pending")
    site.cloud.simulator.start()
    site.fulfilled(request, hurry=0.5)
    site.give_back(request)
    site.wait_empty(hurry=0.5)
    assert site.cloud.made == 1


def test_calls_that_are_never_answered(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call has an end, and is made again; a creation that was made is found."""
    wait = socket.socket.settimeout
    # What drivers wait for is most of a minute.
    monkeypatch.setattr(socket.socket, "settimeout", lambda sock, limit: wait(sock, limit and min(limit, 1.0)))
    site.cloud.fail(("create", "delete", "list"), "hang", after=True, count=1)
    site.run(1, end_hurry=0.5)
    assert site.cloud.made == 1


def test_slow_answers(site: Site) -> None:
    """Each call takes a while; lists take longer."""
    site.cloud.change(latency_seconds=[0.02, 0.1], latencies={site.cloud.operations["list"]: [0.3, 0.3]})
    with site.served(4):
        assert site.cloud.made == 4


def test_late_lists(site: Site) -> None:
    """What is new is missing in lists, and what is deleted stands there: nothing counts as lost, or as leaked."""
    site.cloud.lists_are_late()
    site.launch()
    for _ in range(2):
        requests = [site.submit() for _ in range(3)]
        site.fulfilled(*requests)
        site.give_back(*requests)
    site.wait_empty()
    assert site.cloud.made == 6


def test_pages(site: Site) -> None:
    """Lists come in many pages; some are empty."""
    if site.cloud.name == "kubernetes":
        pytest.skip("the driver watches what there is")
    site.cloud.short_pages()
    with site.served(4):
        assert site.cloud.made == 4


def test_login_that_is_refused(site: Site) -> None:
    """Credentials that are not valid for a while: nothing fails, and all goes on with those that are."""
    site.launch()
    first = site.submit()
    site.fulfilled(first)
    site.cloud.fail("*", "401")
    second = site.submit()
    site.wait("its trouble is known", lambda: "circuit" in site.command("explain", "cloud-a"), hurry=1.0)
    assert site.state(second) in ("requested", "pending")
    site.cloud.heal()
    site.fulfilled(second, hurry=0.5)
    site.give_back(first, second)
    site.wait_empty(hurry=0.5)
