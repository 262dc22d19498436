# SPDX-License-Identifier: Apache-2.0
"""etc/kubernetes: a real API server accepts the manifests, in a dry run."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.kubernetes_rig import KubernetesRig

MANIFESTS: Final = Path(__file__).parents[3] / "etc" / "kubernetes"
#: Where the API server has a kind.
PLACES: Final = {
    "Namespace": "/api/v1/namespaces",
    "Service": "/api/v1/namespaces/nodepool/services",
    "Deployment": "/apis/apps/v1/namespaces/nodepool/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/nodepool/statefulsets",
}


def manifests() -> list[dict[str, Any]]:
    """What the kustomization brings, its namespace first."""
    kustomization = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text(encoding="utf-8"))
    assert kustomization["namespace"] == "nodepool"
    texts = [(MANIFESTS / name).read_text(encoding="utf-8") for name in kustomization["resources"]]
    return [data for text in texts for data in yaml.safe_load_all(text)]


def test_dry_run(rig: KubernetesRig) -> None:
    """Each is validated, completed with defaults, and not stored. The namespace is, because the others are in it."""
    namespace, *others = manifests()
    assert rig.call("POST", f"{PLACES['Namespace']}?dryRun=All", namespace)["metadata"]["name"] == "nodepool"
    rig.call("POST", PLACES["Namespace"], namespace)
    for data in others:
        made = rig.call("POST", f"{PLACES[data['kind']]}?dryRun=All", data)
        assert made["metadata"]["uid"]
        assert made["spec"].get("selector") == data["spec"].get("selector")
    assert all(rig.call("GET", PLACES[kind])["items"] == [] for kind in PLACES if kind != "Namespace")


def test_a_wrong_one_is_refused(rig: KubernetesRig) -> None:
    """So the run above says something."""
    _, data, *_ = manifests()
    data["spec"]["template"]["metadata"]["labels"] = {"another": "label"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        rig.call("POST", f"{PLACES[data['kind']].replace('nodepool', 'default')}?dryRun=All", data)
    with refused.value:
        assert "`selector` does not match" in refused.value.read().decode()
