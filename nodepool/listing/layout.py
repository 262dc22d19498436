# SPDX-License-Identifier: Apache-2.0
"""How a listing fits the width of a terminal: which columns stay, and how wide they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from nodepool.listing.table import Column

#: Between two columns.
GAP: Final = "  "
#: No column is cut to fewer characters, whatever the terminal.
_NARROWEST: Final = 4


def fit(columns: Sequence[Column], natural: Sequence[int], room: int | None) -> dict[int, int]:
    """Number of each column that stays -> its width.

    Columns go by their priority until the rest has room, with long texts cut to the column's ``least``. Then the widest
    are cut until all fit.

    :param natural: width of the longest text of each column.
    :param room: width of the terminal; None = without bounds.
    """
    if room is None:
        return dict(enumerate(natural))
    kept = list(range(len(columns)))
    while _total([min(natural[n], columns[n].least) for n in kept]) > room:
        doomed = max(kept, key=lambda n: (columns[n].priority, n), default=None)
        if doomed is None or columns[doomed].priority == 0:
            break
        kept.remove(doomed)
    widths = {n: min(natural[n], max(room, _NARROWEST)) for n in kept}
    for least in ({n: columns[n].least for n in kept}, dict.fromkeys(kept, _NARROWEST)):
        while _total(list(widths.values())) > room:
            wide = [n for n in kept if widths[n] > least[n]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * max(0, len(widths) - 1)


def cut(text: str, width: int, measure: Callable[[str], int], ellipsis: str = "…") -> str:
    """A text of exactly a width: filled with blanks, or cut, with an ellipsis at its end.

    :param measure: width of a text; some characters take two places, some none.
    """
    excess = measure(text) - width
    if excess <= 0:
        return text + " " * -excess
    text = text[: width - 1] if text.isascii() else text
    while measure(text) > width - 1:
        text = text[:-1]
    return text + ellipsis + " " * (width - 1 - measure(text))
