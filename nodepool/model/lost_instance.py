# SPDX-License-Identifier: Apache-2.0
"""`LostInstance`: the cloud took the instance of a node away, or somebody deleted it there."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

#: Begins the name under which a provider locks nodes of other providers, and puts its own nodes on them.
BACKING_OWNER: Final = "NodePool:metastatic:"


class LostInstance(NamedTuple):
    """:param code: the cloud's name of the reason, e.g. ``SpotEviction``; ``text``: the same for a person."""

    node_id: str
    code: str
    text: str


def with_loss(user_data: Any, code: str, text: str) -> str | None:
    """``user_data`` of a backing node whose instance is lost: no slot of it is used any more (T-15).

    :return: None = it is no data of a backing node, or the loss is there already.
    """
    try:
        data = json.loads(user_data) if isinstance(user_data, str) else None
    except ValueError:
        return None
    if not isinstance(data, dict) or not str(data.get("owner")).startswith(BACKING_OWNER) or data.get("lost"):
        return None
    return json.dumps({**data, "failed": True, "lost": [code, text]})
