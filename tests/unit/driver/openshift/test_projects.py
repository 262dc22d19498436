# SPDX-License-Identifier: Apache-2.0
"""How a project says whose it is."""

from __future__ import annotations

from nodepool.driver.openshift.projects import DESCRIPTION, project_request, project_view

LABELS = {"nodepool_provider_name": "os", "nodepool_node_id": "7", "team": "a"}


def test_description_says_whose_it_is() -> None:
    """OS-1: OpenShift takes over the description, not the labels."""
    request = project_request("main-7", LABELS, {})
    assert request["kind"] == "ProjectRequest"
    assert request["metadata"]["labels"] == LABELS
    annotations = {DESCRIPTION: request["description"]}
    view = project_view({"metadata": {"name": "main-7", "uid": "u", "annotations": annotations}})
    assert view.labels == {"nodepool_provider_name": "os", "nodepool_node_id": "7"}


def test_labels_win() -> None:
    """OS-1: a cluster may set them."""
    found = {"name": "main-7", "labels": LABELS, "annotations": {DESCRIPTION: "nodepool_node_id=8"}}
    assert project_view({"metadata": found}).labels == LABELS


def test_project_of_somebody_else() -> None:
    """OS-1: words of a description are no marks."""
    found = {"name": "main-7", "annotations": {DESCRIPTION: "my project a=b"}}
    assert project_view({"metadata": found}).labels == {}
