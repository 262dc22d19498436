# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.phases.begin_phase`."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine.phases.begin_phase import BeginPhase
from nodepool.exceptions import LaunchNodepoolException
from tests.unit.driver.statemachine.phases.parts import LOG, Machine, Writes, make_node, make_order


def test_machine_is_made() -> None:
    """L-1, L-2, D-1: the image of the label, a name that is short enough, and whose the instance is."""
    node, machine, asked = make_node(), Machine(), []

    def make(*arguments: Any) -> Machine:
        asked.append(arguments)
        return machine

    phase = BeginPhase(make_order(node), Writes(), lambda label: ("image-1", "/path"), make, LOG)
    assert phase.step() is None
    assert phase.machine is machine
    assert node.image_id == "/path"
    ((hostname, label, image, metadata, _, zone, _),) = asked
    assert (hostname, label.name, image, zone) == ("np0000000007", "small", "image-1", None)
    assert metadata == {
        "nodepool_node_id": "0000000007",
        "nodepool_pool_name": "main",
        "nodepool_provider_name": "cloud-a",
    }


def test_cut_off_from_zookeeper() -> None:
    """Nothing is begun while the node may be somebody else's."""
    writes, machine, made = Writes(locked=False), Machine(), []

    def make(*arguments: Any) -> Machine:
        made.append(arguments)
        return machine

    phase = BeginPhase(make_order(make_node()), writes, lambda label: (None, None), make, LOG)
    wait = phase.step()
    assert wait is not None
    assert wait > 0
    assert not made
    writes.locked = True
    assert phase.step() is None
    assert made


def test_no_image() -> None:
    """L-10: it is the attempt that fails."""

    def image_of(label: Any) -> tuple[Any, str | None]:
        raise LaunchNodepoolException("no upload")

    with pytest.raises(LaunchNodepoolException):
        BeginPhase(make_order(make_node()), Writes(), image_of, lambda *_: Machine(), LOG).step()
