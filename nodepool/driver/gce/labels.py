# SPDX-License-Identifier: Apache-2.0
"""Ownership in labels of Compute Engine, whose values are small letters, digits, ``_`` and ``-``, at most 63. Pure.

A value that is none, such as a provider's name with a dot, is changed, and its hash is added. Who knows the names of
provider and pools can tell them again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from nodepool.driver.statemachine.metadata import POOL_KEY, PROVIDER_KEY

_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")
_NOT_IN_VALUES: Final = re.compile(r"[^a-z0-9_-]")
_MOST: Final = 63
_HASH: Final = 12


def label_value(text: str) -> str:
    """A text as the value of a label."""
    if _VALUE.fullmatch(text):
        return text
    digits = hashlib.sha256(text.encode()).hexdigest()[:_HASH]
    return f"{_NOT_IN_VALUES.sub('-', text.lower())[: _MOST - _HASH - 1]}-{digits}"


def labels_of(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata as labels; keys are ours, and fit."""
    return {key: label_value(value) for key, value in metadata.items()}


class LabelReader:
    """Reads what `labels_of` wrote.

    :param provider: its name; ``pools`` the names of its pools.
    """

    def __init__(self, provider: str, pools: Iterable[str]) -> None:
        self._provider = provider
        self._known = {
            PROVIDER_KEY: {label_value(provider): provider},
            POOL_KEY: {label_value(pool): pool for pool in pools},
        }

    def metadata(self, labels: Mapping[str, str] | None) -> dict[str, str]:
        """What labels say of the owner; empty = nothing."""
        found = {key: value for key, value in (labels or {}).items() if key.startswith("nodepool_")}
        return {key: self._known.get(key, {}).get(value, value) for key, value in found.items()}

    @property
    def own_filter(self) -> str:
        """A filter of lists: what this provider labelled."""
        return f'labels.{PROVIDER_KEY}="{label_value(self._provider)}"'
