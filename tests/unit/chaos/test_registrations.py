# SPDX-License-Identifier: Apache-2.0
"""Who can know of a launcher that is away."""

from __future__ import annotations

from tests.chaos.registrations import Registrations


def test_who_is_forgotten() -> None:
    seen = Registrations()
    assert not seen.forgotten(2, 1.0), "nothing is known"
    seen.note(1.0, {0: "a", 1: "b", 2: "c"})
    seen.note(2.0, {0: "a", 1: "b", 2: "c"})
    assert not seen.forgotten(2, 3.0), "it is there"
    seen.note(4.0, {0: "a", 1: "b"})
    assert not seen.forgotten(2, 5.0)
    seen.note(6.0, {1: "b"})
    seen.note(7.0, {0: "a2", 1: "b"})
    assert not seen.forgotten(2, 8.0), "one remembers"
    seen.note(9.0, {0: "a2"})
    assert seen.forgotten(2, 9.5)
    assert not seen.forgotten(1, 9.5)
    seen.note(10.0, {0: "a2", 1: "b2"})
    assert seen.forgotten(2, 11.0)
    seen.note(12.0, {0: "a2", 1: "b2", 2: "c2"})
    assert not seen.forgotten(2, 13.0)
    assert not seen.forgotten(2, 5.0)
