# SPDX-License-Identifier: Apache-2.0
"""Records of any content: taken, or refused with InvalidRecord, and never another error.

A cache that meets another error would never become complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.model.component import PoolComponent
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.model.node import Node
from nodepool.model.record import InvalidRecord
from nodepool.model.request import NodeRequest

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats(allow_nan=False) | st.text(max_size=5)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=3), SCALARS, max_size=3)

KEYS = {
    "node": [*Node("a").to_dict(1.0), "new_key", "id"],
    "request": [*NodeRequest().to_dict(1.0), "tenant_name", "new_key"],
    "pool": [*PoolComponent().to_dict(), "new_key"],
    "build": ["state", "state_time", "builder", "builder_id", "formats", "username", "python_path", "new_key"],
    "upload": ["state", "state_time", "external_id", "external_name", "format", "shell_type", "new_key"],
}
READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "node": lambda data: Node.from_dict(data, "0000000001"),
    "request": lambda data: NodeRequest.from_dict(data, "200-0000000001"),
    "pool": lambda data: PoolComponent.from_dict(data, "host0000000001"),
    "build": lambda data: ImageBuild.from_dict(data, "debian", "1"),
    "upload": lambda data: ImageUpload.from_dict(data, "debian", "1", "cloud", "0000000001"),
}


@pytest.mark.parametrize("kind", sorted(READERS))
@given(data=st.data())
def test_any_values(kind: str, data: st.DataObject) -> None:
    state = st.sampled_from(["ready", "requested", "building", "uploading", "deleting", "odd"])
    found = data.draw(st.dictionaries(st.sampled_from(KEYS[kind]), VALUES))
    if data.draw(st.booleans()):
        found["state"] = data.draw(state)
    try:
        record = READERS[kind](found)
    except InvalidRecord:
        return
    written = record.to_dict(5.0) if kind != "pool" else record.to_dict()
    again = READERS[kind](json.loads(json.dumps(written)))
    assert vars(again).keys() == vars(record).keys()
