# SPDX-License-Identifier: Apache-2.0
"""How a project says whose it is. Pure.

OpenShift does not take over labels of the request, and a project's owner may not add any. What it does take over is the
description.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from nodepool.driver.kubernetes import objects
from nodepool.driver.kubernetes.records import PlaceView, place_view

DESCRIPTION: Final = "openshift.io/description"

Object = dict[str, Any]


def project_request(name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    """A request for a project."""
    return {
        "apiVersion": "project.openshift.io/v1",
        "kind": "ProjectRequest",
        **objects.namespace(name, labels, annotations),
        "displayName": name,
        "description": " ".join(f"{key}={value}" for key, value in sorted(objects.marks(labels).items())),
    }


def project_view(found: Object) -> PlaceView:
    """What is kept of a project: its marks may stand in the description."""
    view = place_view(found)
    if objects.marks(view.labels):
        return view
    description = str((found["metadata"].get("annotations") or {}).get(DESCRIPTION) or "")
    pairs = (word.partition("=") for word in description.split())
    marks = objects.marks({key: value for key, found_sign, value in pairs if found_sign})
    return dataclasses.replace(view, labels={**view.labels, **marks})
