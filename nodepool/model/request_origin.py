# SPDX-License-Identifier: Apache-2.0
"""For whom a node request is, as far as its record says, for people who read logs and listings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest

#: Key of ``requestor_data`` -> what it is called. Zuul writes all but the project.
_KEYS: Final = {"job_name": "job", "project_name": "project", "pipeline_name": "pipeline", "tenant_name": "tenant"}
#: Longest name that is shown: names come from other programs.
MAX_NAME: Final = 100
#: Labels of one request that are named.
MAX_LABELS: Final = 10


def origin_of(request: NodeRequest) -> dict[str, str]:
    """``job``, ``project``, ``pipeline`` and ``tenant`` of a request, those that are known."""
    data = request.requestor_data
    found: dict[str, str] = {}
    if isinstance(data, dict):
        found = {name: _cut(data[key]) for key, name in _KEYS.items() if isinstance(data.get(key), str) and data[key]}
    if "tenant" not in found and request.tenant_name:
        found["tenant"] = _cut(request.tenant_name)
    return found


def described(request: NodeRequest) -> str:
    """Labels and origin of a request, e.g. ``2 x gpu, small; job unit, pipeline check, tenant t1``."""
    counts = {label: request.node_types.count(label) for label in dict.fromkeys(request.node_types)}
    labels = [label if count == 1 else f"{count} x {label}" for label, count in counts.items()]
    if len(labels) > MAX_LABELS:
        labels[MAX_LABELS:] = [f"{len(labels) - MAX_LABELS} more labels"]
    origin = ", ".join(f"{name} {value}" for name, value in origin_of(request).items())
    return "; ".join(part for part in (", ".join(labels), origin) if part)


def _cut(name: str) -> str:
    """In one line, of bounded length."""
    return " ".join(name.split())[:MAX_NAME]
