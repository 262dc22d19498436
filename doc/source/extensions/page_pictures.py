# SPDX-License-Identifier: Apache-2.0
"""Pictures of web pages, in the colours that the reader of the documentation has chosen.

In a page, ``.. page-picture:: overview-phone request-phone`` with the option ``:alt:`` becomes these pictures of
``pictures/``, side by side. ``tools/pictures.py`` makes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

DIRECTIVE: Final = re.compile(r"^\.\. page-picture:: (.+)\n   :alt: (.+)\n", re.MULTILINE)
SCHEMES: Final = ("light", "dark")


def names(text: str) -> list[str]:
    """The names of the files that a page shows."""
    return [
        f"{name}-{scheme}.png" for found in DIRECTIVE.findall(text) for name in found[0].split() for scheme in SCHEMES
    ]


def expand(text: str) -> str:
    """A page with its pictures."""
    return DIRECTIVE.sub(lambda match: "\n".join(_images(match[1].split(), match[2])) + "\n", text)


def _images(pictures: list[str], text: str) -> Iterator[str]:
    """One is a figure with the text below it; several stand side by side."""
    for scheme in SCHEMES:
        if len(pictures) == 1:
            path = f"/pictures/{pictures[0]}-{scheme}.png"
            yield from (f".. figure:: {path}", f"   :figclass: only-{scheme}", f"   :alt: {text}", "", f"   {text}", "")
        else:
            yield from (f".. container:: side-by-side only-{scheme}", "")
            for name in pictures:
                yield from (f"   .. image:: /pictures/{name}-{scheme}.png", f"      :alt: {text}", "")


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx. The pictures are put into the text of a page before it is parsed."""

    def read(app: Any, page: str, source: list[str]) -> None:
        source[0] = expand(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
