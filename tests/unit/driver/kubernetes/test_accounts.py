# SPDX-License-Identifier: Apache-2.0
"""Accounts that the cluster makes, and launches that wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudSetup
from nodepool.driver.kubernetes.cloud import KIND, DefaultAccounts
from tests.unit.driver.kubernetes.stand_in import StandIn


def account(namespace: str, *secrets: str) -> dict[str, Any]:
    named = {"secrets": [{"name": name} for name in secrets]} if secrets else {}
    return {"metadata": {"name": "default", "namespace": namespace}, **named}


@pytest.fixture
def accounts() -> Iterator[DefaultAccounts]:
    """Without a thread: tests tell what the watch would tell."""
    made = DefaultAccounts(StandIn())
    made.stop()
    yield made
    made.join()


def test_who_waits_is_woken(accounts: DefaultAccounts) -> None:
    """KU-2: once, and nobody else."""
    woken: list[str] = []
    accounts.listed(KIND, [], 0.0)
    for name in ("main-1", "main-2"):
        accounts.wait_for(name, lambda name=name: woken.append(name))  # type: ignore[misc]
    assert accounts.is_missing("main-1")
    for _ in range(2):
        accounts.changed(KIND, account("main-1"), gone=False)
    accounts.changed(KIND, account("of-somebody-else"), gone=False)
    assert woken == ["main-1"]
    assert not accounts.is_missing("main-1")
    assert accounts.is_missing("main-2")
    # The watch begins anew.
    accounts.listed(KIND, [account("main-1"), account("main-2")], 0.0)
    assert woken == ["main-1", "main-2"]


def test_nobody_knows(accounts: DefaultAccounts) -> None:
    """KU-2: before the watch has begun, and without the right to watch, pods are sent."""
    woken: list[str] = []
    accounts.wait_for("main-1", lambda: woken.append("main-1"))
    assert not accounts.is_missing("main-1")
    accounts.listed(KIND, [], 0.0)
    assert accounts.is_missing("main-1")
    accounts.refused(KIND, CloudSetup("no", 403))
    assert not accounts.is_missing("main-1")
    assert woken == ["main-1"]
    accounts.refused(KIND, None)
    assert accounts.is_missing("main-1")


def test_next_namespace_of_the_name(accounts: DefaultAccounts) -> None:
    """KU-10: the account of the attempt before says nothing."""
    accounts.listed(KIND, [], 0.0)
    accounts.wait_for("main-1", lambda: None)
    accounts.changed(KIND, account("main-1"), gone=False)
    accounts.wait_for("main-1", lambda: None)
    assert accounts.is_missing("main-1")
    accounts.changed(KIND, account("main-1"), gone=False)
    accounts.changed(KIND, account("main-1"), gone=True)
    assert accounts.is_missing("main-1")
    accounts.over("main-1")
    assert not accounts.is_missing("main-1")


def test_tokens_of_old_clusters(accounts: DefaultAccounts) -> None:
    """KU-2: before Kubernetes 1.24 a pod that gets a token waits for that, too."""
    woken: list[str] = []
    accounts.listed(KIND, [], 0.0)
    accounts.wait_for("main-1", lambda: woken.append("main-1"))
    accounts.wait_for("main-2", lambda: woken.append("main-2"), token=False)
    for name in ("main-1", "main-2"):
        accounts.changed(KIND, account(name), gone=False)
    assert not accounts.is_missing("main-1"), "nobody has said that a token is needed"
    accounts.need_tokens()
    assert accounts.is_missing("main-1")
    assert not accounts.is_missing("main-2")
    accounts.changed(KIND, account("main-1", "default-dockercfg-x"), gone=False)
    assert accounts.is_missing("main-1")
    assert woken == ["main-1", "main-2"]
    accounts.changed(KIND, account("main-1", "default-dockercfg-x", "default-token-y"), gone=False)
    assert woken == ["main-1", "main-2", "main-1"]
    assert not accounts.is_missing("main-1")


def test_token_that_nobody_waits_for(accounts: DefaultAccounts) -> None:
    """A pod goes on with the account; the token that old clusters add a moment later wakes nobody."""
    woken: list[str] = []
    accounts.listed(KIND, [], 0.0)
    accounts.wait_for("main-1", lambda: woken.append("main-1"))
    accounts.changed(KIND, account("main-1"), gone=False)
    accounts.changed(KIND, account("main-1", "default-token-y"), gone=False)
    assert woken == ["main-1"]
    accounts.need_tokens()
    assert not accounts.is_missing("main-1")


def test_list_that_lacks_an_account(accounts: DefaultAccounts) -> None:
    """KU-10: the watch has missed the end of the last attempt's account, and begins anew."""
    accounts.listed(KIND, [], 0.0)
    woken: list[str] = []
    accounts.wait_for("main-1", lambda: woken.append("main-1"))
    accounts.changed(KIND, account("main-1"), gone=False)
    accounts.listed(KIND, [], 0.0)
    assert accounts.is_missing("main-1")
    accounts.changed(KIND, account("main-1"), gone=False)
    assert not accounts.is_missing("main-1")
    assert len(woken) == 2
