# SPDX-License-Identifier: Apache-2.0
"""Records that no running daemon looks after (rule OV-8)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageView, UploadView
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.status import AbsentProvider, HostStatus, LauncherStatus
from nodepool.plan import explain
from nodepool.plan.attention import problems
from nodepool.plan.observed import Observed
from nodepool.plan.ownerless import end_of, ownerless, subject_is_served
from tests.support.observed import NOW, component, known, node, request, seen, status

REGISTERED = [component("lab", "arm")]


def images(builder: str, *uploaded_to: str) -> ImagesView:
    record = ImageBuild("debian", "b1")
    record.builder = builder
    uploads = {provider: (UploadView("1", None),) for provider in uploaded_to}
    return ImagesView({"debian": ImageView("debian", builds={"b1": BuildView("b1", record, uploads=uploads)})})


def told(observed: Observed) -> list[tuple[str, str, str]]:
    return [(one.kind, one.name, one.left) for one in ownerless(observed)]


def test_a_provider_that_was_removed() -> None:
    """OV-8: its nodes and uploads; `status` and `explain` say so, and what ends it."""
    nodes = known(node(1, "vm", provider="cloud"), node(2, "vm", state=states.IN_USE, provider="cloud"))
    observed = seen(
        request(), registered=REGISTERED, nodes=nodes, images=images("b1.example.com", "cloud", "lab"), builders=None
    )
    assert told(observed) == [("provider", "cloud", "2 nodes (1 in-use, 1 ready) and 1 upload")]
    text = "no launcher serves provider cloud, of which there are 2 nodes (1 in-use, 1 ready) and 1 upload"
    remedy = (
        "start the launcher that has provider cloud; if it was removed from the configuration, "
        "put it back with max-servers: 0 until its nodes and uploads are deleted; "
        "or nodepool erase cloud forgets them, and what is in the cloud stays there"
    )
    (problem,) = problems([], [LauncherStatus(host="l1")], [], observed)
    assert (problem.kind, problem.text, problem.command) == ("provider", f"{text}: {remedy}", "explain cloud")
    assert explain.kind_of("cloud", observed) == "provider"
    answer = explain.explain("cloud", "provider", observed).to_dict()
    assert (answer["text"], answer["remedies"]) == (text, [remedy])
    answer = explain.explain("0000000001", "node", observed).to_dict()
    assert answer["text"] == "is ready and free; no request wants vm; no launcher serves provider cloud"
    assert f"{text}: {remedy}" in answer["remedies"]


def test_uploads_alone() -> None:
    """OV-8: a provider without pools has a new build, because a builder serves it; another one was removed."""
    builds = {}
    for number, providers in enumerate((["cloud", "store"], ["store", "lab"], ["lab"])):
        record = ImageBuild("debian", f"b{number}")
        record.state_time = NOW + number
        uploads = {provider: (UploadView("1", None),) for provider in providers}
        builds[f"b{number}"] = BuildView(f"b{number}", record, uploads=uploads)
    view = ImagesView({"debian": ImageView("debian", builds=builds)})
    assert told(seen(registered=REGISTERED, images=view)) == [("provider", "cloud", "1 upload")]


def test_providers_that_no_builder_has() -> None:
    """OV-8: all builders report theirs, so the uploads to another provider are named, be they of the newest builds."""
    view = images("b1.example.com", "cloud", "lab", "store")
    builders = frozenset({"b1", "b2"})
    reported = {"b1": frozenset({"store"}), "b2": frozenset({"store", "other"})}
    observed = seen(registered=REGISTERED, images=view, builders=builders, builder_providers=reported)
    assert told(observed) == [("provider", "cloud", "1 upload"), ("uploads", "lab", "1 upload")]
    text = "no builder has provider lab, to which there is 1 upload"
    remedy = "add provider lab to the configuration of a builder, which deletes what no label uses"
    problem = problems([], [LauncherStatus(host="l1")], [], observed)[1]
    assert (problem.kind, problem.text, problem.command) == ("provider", f"{text}: {remedy}", "explain lab")
    assert explain.explain("lab", "provider", observed).to_dict()["remedies"] == [f"{text}: {remedy}"]
    del reported["b2"]
    assert told(observed) == []


def test_pools_and_labels_that_were_removed() -> None:
    """OV-8: of a provider that is served, ready nodes that nobody can get; the others are looked after."""
    old_pool, old_label, used = node(1, "arm", provider="lab"), node(2, "old", provider="lab"), node(3, provider="lab")
    old_pool.pool, used.pool, used.state = "gone", "gone", states.USED
    observed = seen(registered=REGISTERED, nodes=known(old_pool, old_label, used, node(4, "arm", provider="lab")))
    assert told(observed) == [("pool", "lab/gone", "1 node (1 ready)"), ("label", "old", "1 node (1 ready)")]
    assert ownerless(observed)[0].remedy == "nodepool delete 0000000001 deletes it"


def test_what_is_looked_after() -> None:
    """OV-8: a provider that could not be started is configured; without any launcher there is another problem."""
    nodes = known(node(1, provider="cloud"))
    absent = LauncherStatus(host="l1", absent=[AbsentProvider("cloud", "openstack", "no clouds.yaml", NOW)])
    assert told(seen(registered=REGISTERED, nodes=nodes, launchers=[absent])) == []
    assert told(seen(nodes=nodes)) == []


def test_a_builder_that_is_away() -> None:
    """OV-8: nobody deletes the files of its builds."""
    observed = seen(registered=REGISTERED, images=images("b1", "lab"), builders=frozenset({"b2"}))
    (found,) = ownerless(observed)
    assert found.text == "builder b1 is not registered, and has the files of 1 build"
    assert told(seen(registered=REGISTERED, images=images("b1.example.com", "lab"), builders=frozenset({"b1"}))) == []


@pytest.mark.parametrize(
    ("kind", "name", "served"),
    [
        ("provider", "lab", True),
        ("provider", "cloud", False),
        ("pool", "lab/main", True),
        ("pool", "lab/other", False),
        ("label", "arm", True),
        ("label", "vm", False),
        ("launcher", "l1", True),
        ("launcher", "l9", False),
        ("host", "h1", True),
        ("host", "u@h1:22", True),
        ("host", "h9", False),
    ],
)
def test_maintenance_of_what_is_not_there(kind: str, name: str, served: bool) -> None:
    record = Maintenance(kind, name, Mode.QUARANTINE if kind == "host" else Mode.PAUSE)
    fields: dict[str, Any] = {"statuses": [status("lab", hosts=[HostStatus("u@h1:22", True)])]}
    observed = seen(registered=REGISTERED, maintenance=[record], **fields)
    assert subject_is_served(record, observed) is served
    (problem,) = problems([], [LauncherStatus(host="l1")], [], observed)
    assert problem.text.endswith(f"; no launcher has this {kind}, {end_of(record)} ends it") is not served
