# SPDX-License-Identifier: Apache-2.0
"""What can be set in a simulated cloud while it runs.

Every field has the same name in JSON (admin endpoint) and in Python. Times are in seconds; a range is
``[least, most]``, drawn evenly from the simulator's seeded generator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from simulators.base.rules import ErrorRule, Range, Rule, to_range


@dataclass
class SimulatorSettings:
    """What every simulated cloud has. A cloud's own settings are a dataclass on top.

    :cvar RULES: field -> type of the rules in its list.
    :cvar TABLES: fields that map patterns to ranges.
    :param latency_seconds: of each API call; ``latencies``: of operations by shell pattern, the first that matches.
    :param errors: API calls that go wrong; the first rule that matches.
    :param by_turns: what the cloud writes in several forms, such as the case of ids, comes in all of them, where the
        simulator has them. False = in one: released drivers do not understand all.
    """

    RULES: ClassVar[Mapping[str, type[Rule]]] = {"errors": ErrorRule}
    TABLES: ClassVar[frozenset[str]] = frozenset({"latencies"})

    latency_seconds: Range = (0.0, 0.0)
    latencies: dict[str, Range] = field(default_factory=dict)
    errors: list[ErrorRule] = field(default_factory=list)
    by_turns: bool = True

    def update(self, changes: dict[str, Any]) -> None:
        """Takes changes from JSON; what is not named stays. Groups of settings (``quota``) are merged, lists replaced.

        :raises ValueError: an unknown name or a bad value; nothing was changed.
        """
        known = {entry.name for entry in dataclasses.fields(self)}
        if unknown := sorted(set(changes) - known):
            raise ValueError(f"unknown settings: {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
        try:
            new = {name: self._converted(name, value) for name, value in changes.items()}
        except TypeError as error:
            raise ValueError(str(error)) from None
        for name, value in new.items():
            setattr(self, name, value)

    def _converted(self, name: str, value: Any) -> Any:
        present = getattr(self, name)
        if name in self.RULES:
            return [entry if isinstance(entry, Rule) else self.RULES[name](**entry) for entry in value]
        if name in self.TABLES:
            return {pattern: to_range(seconds) for pattern, seconds in value.items()}
        if dataclasses.is_dataclass(present) and not isinstance(present, type) and isinstance(value, Mapping):
            return dataclasses.replace(present, **value)
        if isinstance(present, tuple):
            return to_range(value)
        return value

    def as_json(self) -> dict[str, Any]:
        """All settings, as `update` takes them."""
        return dataclasses.asdict(self)
