# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from nodepool.compat.modules import DriverConfig, LabelRecorder


def test_labels_in_order() -> None:
    recorder = LabelRecorder()
    for label, node_id in (("a", "1"), ("a", "2"), ("b", "3")):
        recorder.add(label, node_id)
    assert recorder.labels() == ["a", "a", "b"]
    assert recorder.pop("a") == "1"
    recorder.removeNode("3")
    recorder.removeNode("4")
    assert recorder.labels() == ["a"]
    with pytest.raises(KeyError):
        recorder.pop("b")


def test_driver_config() -> None:
    """Made empty, and compared by its name."""
    one, other = DriverConfig(), DriverConfig()
    one.name = "mine"
    assert one != other
    other.name = "mine"
    assert one == other
