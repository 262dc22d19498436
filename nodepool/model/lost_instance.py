# SPDX-License-Identifier: Apache-2.0
"""`LostInstance`: the cloud took the instance of a node away, or somebody deleted it there."""

from __future__ import annotations

from typing import NamedTuple


class LostInstance(NamedTuple):
    """:param code: the cloud's name of the reason, e.g. ``SpotEviction``; ``text``: the same for a person."""

    node_id: str
    code: str
    text: str
