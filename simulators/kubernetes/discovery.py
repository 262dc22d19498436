# SPDX-License-Identifier: Apache-2.0
"""What clients ask for first: which groups, versions and kinds there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulators.kubernetes.kinds import ACCESS_REVIEWS, OPENSHIFT, STORED, ObjectKind

Json = dict[str, Any]
#: What the simulator says that it is.
VERSION = {
    "major": "1",
    "minor": "31",
    "gitVersion": "v1.31.0",
    "gitCommit": "simulated",
    "gitTreeState": "clean",
    "buildDate": "2024-08-13T00:00:00Z",
    "goVersion": "go1.22.5",
    "compiler": "gc",
    "platform": "linux/amd64",
}


def discover(parts: Sequence[str], openshift: bool) -> Json | None:
    """The answer for this path, None = it is none of discovery."""
    kinds = [*STORED, ACCESS_REVIEWS, *(OPENSHIFT if openshift else ())]
    if list(parts) == ["version"]:
        return dict(VERSION)
    if list(parts) == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    groups = sorted({kind.group for kind in kinds if kind.group})
    if list(parts) == ["apis"]:
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(group) for group in groups]}
    if len(parts) == 2 and parts[0] == "apis" and parts[1] in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1])}
    if list(parts) == ["api", "v1"]:
        return _resources("v1", [kind for kind in kinds if not kind.group])
    if len(parts) == 3 and parts[0] == "apis" and parts[1] in groups and parts[2] == "v1":
        return _resources(f"{parts[1]}/v1", [kind for kind in kinds if kind.group == parts[1]])
    return None


def _group(group: str) -> Json:
    version = {"groupVersion": f"{group}/v1", "version": "v1"}
    return {"name": group, "versions": [version], "preferredVersion": version}


def _resources(version: str, kinds: Sequence[ObjectKind]) -> Json:
    resources: list[Json] = []
    for kind in kinds:
        entry = {"singularName": kind.name.lower(), "namespaced": kind.namespaced, "kind": kind.name}
        resources.append({"name": kind.plural, **entry, "verbs": list(kind.verbs)})
        for subresource in kind.subresources:
            entry = {"singularName": "", "namespaced": kind.namespaced, "kind": kind.name}
            resources.append({"name": f"{kind.plural}/{subresource}", **entry, "verbs": ["get", "patch", "update"]})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
