# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodepool.listing.table import printable


def test_escape_sequences_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[2Jb\nc") == "a [2Jb c"
    assert printable("größer") == "größer"
