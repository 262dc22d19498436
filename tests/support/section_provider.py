# SPDX-License-Identifier: Apache-2.0
"""`SectionProvider`: a provider of any driver for a launcher under test, as its section says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class SectionProvider:
    """For `tests.support.launcher_config.write_config`.

    :param section: change it, its first pool or the first label of that before the launcher is started.
    """

    def __init__(self, section: dict[str, Any]) -> None:
        self.section = section
        self.name = str(section["name"])

    @property
    def labels(self) -> Iterable[str]:
        return [label["name"] for pool in self.section["pools"] for label in pool["labels"]]

    @property
    def pool(self) -> dict[str, Any]:
        found: dict[str, Any] = self.section["pools"][0]
        return found

    @property
    def label(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pool["labels"][0]
        return found

    @property
    def slots(self) -> int:
        return 0

    def as_config(self) -> dict[str, Any]:
        return self.section
