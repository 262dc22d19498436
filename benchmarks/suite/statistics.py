# SPDX-License-Identifier: Apache-2.0
"""Figures of many measurements. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which ``part`` (0 to 1) of ``values`` lie; nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(part * len(ordered) + 0.5) - 1))]


def median(values: Iterable[float]) -> float:
    """The middle one of some measurements; the higher one of two."""
    return percentile(list(values), 0.5)


def rounded(values: Mapping[str, float | None]) -> dict[str, float]:
    """What was measured, with four significant digits: more would be noise."""
    return {key: float(f"{value:.4g}") for key, value in values.items() if value is not None}


def percent_worse(pairs: Sequence[tuple[float, float]], *, more_is_better: bool) -> float | None:
    """How much worse the second of two measurements is, in percent: the middle one of all pairs. Below 0 it is better.

    :param pairs: measured right after each other; none of them is 0. Without any there is no figure.
    """
    ratios = [before / after if more_is_better else after / before for before, after in pairs]
    return 100 * (median(ratios) - 1) if ratios else None
