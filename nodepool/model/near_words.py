# SPDX-License-Identifier: Apache-2.0
"""Words that may be meant by a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``, did you mean 'x'?`` if a known word is near; else an empty text."""
    meant = nearest(word, known)
    return f", did you mean {meant!r}?" if meant else ""


def nearest(word: object, known: Iterable[str]) -> str:
    """The known word that is probably meant; empty = none is near."""
    import difflib

    matches = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return matches[0] if matches else ""
