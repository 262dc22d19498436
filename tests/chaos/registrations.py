# SPDX-License-Identifier: Apache-2.0
"""Which launchers were registered when, and who could know of one that was away."""

from __future__ import annotations

from collections.abc import Mapping


class Registrations:
    """One thread notes, others ask when that has ended."""

    def __init__(self) -> None:
        #: Seconds of the run, and who was there then: number of the launcher -> id of its pool, new after each start.
        self._seen: list[tuple[float, dict[int, str]]] = []

    def note(self, when: float, present: Mapping[int, str]) -> None:
        """Who is registered now."""
        if not self._seen or self._seen[-1][1] != present:
            self._seen.append((when, dict(present)))

    def forgotten(self, number: int, when: float) -> bool:
        """Was a launcher away then, and had all that were there been started after it went?

        Then nobody could know that there is such a launcher: what only it can serve fails.
        """
        past = [present for at, present in self._seen if at <= when]
        if not past or number in past[-1]:
            return False
        with_it = [present for present in past if number in present]
        known_to = set(with_it[-1].values()) if with_it else set()
        return known_to.isdisjoint(past[-1].values())
