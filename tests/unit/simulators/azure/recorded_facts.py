# SPDX-License-Identifier: Apache-2.0
"""What real answers of Azure look like, by call: ``recorded_facts.yaml``, which names the recordings, has the facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

_FACTS: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


class Recorded(NamedTuple):
    """An answer.

    :param headers: names in lower case, and expressions; None = it is not there.
    :param fields: types, and paths of fields that have them.
    :param values: those that say what is the case, by path.
    """

    source: str
    status: int
    headers: dict[str, str | None]
    fields: dict[str, list[str]]
    values: dict[str, Any]


RECORDED: Final = {
    name: Recorded(**{"headers": {}, "fields": {}, "values": {}, **fact}) for name, fact in _FACTS["recorded"].items()
}
#: Paths of what the simulator has beside that.
ALSO: Final[tuple[str, ...]] = tuple(_FACTS["also"])
