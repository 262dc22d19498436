# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace
from typing import cast

import pytest

from nodepool.model.maintenance import Maintenance, Mode
from nodepool.web.changes import Access, Actions
from nodepool.web.pages.details import MOST_SUBJECTS, of_node, of_subject, of_subjects
from nodepool.web.tokens import Tokens
from tests.support.web_records import HOSTILE, NOW, full
from tests.support.web_site import WebSite
from tests.support.web_tokens import authenticator, operator_rule, token, viewer_token
from tests.unit.web.test_logins import GuardedSite, bearer

SEEN = full().observed


def page(path: str, of: str, mark: str = "") -> str:
    access = Access(Tokens([authenticator()], [operator_rule()]), cast("Actions", None), False, ())
    answer = WebSite(full(mark), access=access).client.get(path, headers=bearer(of))
    assert answer.status_code == 200
    return answer.text


@pytest.mark.parametrize(
    ("path", "targets"),
    [
        ("/providers/cloud-1", ["provider/cloud-1/end", "pool/cloud-1%2Fmain"]),
        ("/labels/gpu", ["label/gpu"]),
        ("/launchers", ["launcher/l1", "launcher/l2"]),
        ("/launchers?q=11.9", ["launcher/l2"]),
        ("/hosts?q=node8", ["host/zuul%40node8%3A22"]),
    ],
)
def test_forms(path: str, targets: list[str]) -> None:
    """WP-97: of what the page shows; nobody else has them (WP-89)."""
    found = re.findall(r'action="[./]*api/v1/maintenance/([^"]*)"', page(path, token()))
    assert list(dict.fromkeys(found)) == targets
    assert "api/v1/maintenance" not in page(path, viewer_token())


@pytest.mark.parametrize("path", ["/hosts", "/launchers"])
def test_names_that_no_address_can_have(path: str) -> None:
    """WP-97, WP-43: there are no forms for them; the page is shown."""
    assert "<script>alert" not in page(path, token(), HOSTILE)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("provider", ["Pause", "Drain"]),
        ("label", ["Pause"]),
        ("host", ["Quarantine"]),
        ("launcher", ["Pause", "Drain"]),
    ],
)
def test_modes(kind: str, names: list[str]) -> None:
    """WP-97, WP-98: what cannot be taken back at once must be confirmed."""
    actions = of_subject(kind, "x", SEEN)
    assert [action.name for action in actions] == names
    assert all(bool(action.sure) == (action.name != "Pause") and action.needs_reason for action in actions)


@pytest.mark.parametrize("name", ["zuul@node8:22", "node8"])
def test_end_of_a_quarantine(name: str) -> None:
    """WP-97: also when the record has the host's name alone."""
    seen = replace(SEEN, maintenance=[Maintenance("host", name, Mode.QUARANTINE, "disk", "alice", NOW)])
    (action,) = of_subject("host", "zuul@node8:22", seen)
    assert action.name == "Release"
    assert action.target.endswith("/end")
    assert name.partition("@")[0] in action.target


def test_each_subject_once_and_not_too_many() -> None:
    """WP-97"""
    names = [f"l{number}" for number in range(2 * MOST_SUBJECTS)]
    assert len(of_subjects("launcher", [*names, *names], SEEN)) == 2 * MOST_SUBJECTS
    assert len(of_subjects("launcher", ["l1", "l1"], SEEN)) == 2


@pytest.mark.parametrize(("sent", "status"), [({}, 400), ({"sure": "yes"}, 200)])
def test_confirmation(sent: dict[str, str], status: int) -> None:
    """WP-98: the server looks, whatever a browser does."""
    site = GuardedSite()
    form = {"reason": "why", **sent}
    assert site.client.post("/api/v1/nodes/0000000001/delete", data=form, headers=bearer(token())).status_code == status
    assert len(site.actions.deleted) == (status == 200)


@pytest.mark.parametrize("mode", ["drain", "quarantine"])
def test_confirmation_of_maintenance(mode: str) -> None:
    """WP-98"""
    form = {"reason": "why", "mode": mode}
    answer = GuardedSite().client.post("/api/v1/maintenance/provider/none", data=form, headers=bearer(token()))
    assert answer.status_code == 400
    assert "Confirm" in answer.text


def test_confirmation_is_for_forms() -> None:
    """WP-98: a program, and what takes nothing away, need none."""
    site = GuardedSite()
    path = "/api/v1/nodes/0000000001"
    assert site.client.post(f"{path}/delete", json={"reason": "why"}, headers=bearer(token())).status_code == 200
    assert site.client.post(f"{path}/hold", data={"reason": "why"}, headers=bearer(token())).status_code == 200


def test_node_that_is_locked() -> None:
    """WP-101: it can wait; what waits can be withdrawn."""
    node = full().observed.nodes["0000000001"]
    assert [action.may_wait for action in of_node(node, locked=True, pending=False)] == [True, True]
    assert [action.may_wait for action in of_node(node, locked=False, pending=False)] == [False, False]
    [withdraw] = of_node(node, locked=True, pending=True)
    assert withdraw.target == "api/v1/nodes/0000000001/pending/end"
    assert 'name="when_free"' in page("/nodes/0000000001", token())
