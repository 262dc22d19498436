# SPDX-License-Identifier: Apache-2.0
"""nodepool.listing.table: each state has a colour that the library knows."""

from __future__ import annotations

import pytest
from rich.style import Style

from nodepool.listing import table
from nodepool.model import states


@pytest.mark.parametrize("state", sorted({*states.NODE_STATES, *states.REQUEST_STATES}))
def test_each_state(state: str) -> None:
    assert table.state(state)
    Style.parse(table.state(state))


@pytest.mark.parametrize("value", [None, "odd", ["ready"], 1])
def test_what_is_no_state_has_none(value: object) -> None:
    assert table.state(value) == ""


@pytest.mark.parametrize(("kind", "style"), [("provider", table.BAD), ("host", table.BAD), ("version", table.WAITING)])
def test_problems(kind: str, style: str) -> None:
    assert table.problem(kind) == style
    Style.parse(table.problem(kind))
