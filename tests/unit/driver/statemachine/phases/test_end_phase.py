# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.phases.end_phase`."""

from __future__ import annotations

import pytest

from nodepool.driver.statemachine.phases.end_phase import EndPhase
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.model import states
from tests.unit.driver.statemachine.phases.parts import LOG, Writes, make_node


def test_stored() -> None:
    node, writes = make_node(), Writes()
    end = EndPhase(node, writes, states.READY, LOG)
    end.step()
    assert (node.state, end.error, writes.stored) == (states.READY, None, [None])


@pytest.mark.parametrize("error", [ZKConnectionError("lost"), TypeError("cannot be stored as JSON")])
def test_cannot_be_stored(error: Exception) -> None:
    """L-9: what is not stored is not ready."""
    node = make_node()
    end = EndPhase(node, Writes(error=error), states.READY, LOG)
    end.step()
    assert (node.state, end.error) == (states.FAILED, error)


def test_taken() -> None:
    """The launch must know."""
    with pytest.raises(ZKConflict):
        EndPhase(make_node(), Writes(error=ZKConflict("deleted")), states.READY, LOG).step()
