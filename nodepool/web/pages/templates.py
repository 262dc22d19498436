# SPDX-License-Identifier: Apache-2.0
"""`Templates`: makes HTML of values, and `address`: where pages are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import jinja2

from nodepool.web.pages.shown_text import shown_text
from nodepool.web.pages.table_html import parts_html, row_html

if TYPE_CHECKING:
    from nodepool.web.static_files import StaticFiles

_DIRECTORY: Final = Path(__file__).parents[1] / "templates"


class LongText(str):
    """A text that is shown as it is, but for markup: long, and without characters that do more than be seen."""

    __slots__ = ()


class Templates:
    """The templates of all pages. Texts are escaped.

    :param version: of this release.
    """

    def __init__(self, files: StaticFiles, version: str) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_DIRECTORY),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_shown,
        )
        self._environment.globals.update(static=files.address, version=version)
        self._environment.filters.update(row_html=row_html, parts_html=parts_html)

    def render(self, name: str, /, **values: Any) -> bytes:
        """A page. Blocks for the file system at the first use of a template."""
        return self._environment.get_template(name).render(**values).encode("utf-8", "replace")


def address(*parts: str, **query: str | int | None) -> str:
    """An address relative to the root of the site; names may have any characters. None = without that parameter."""
    text = "/".join(_quoted(part) for part in parts)
    given = "&".join(f"{key}={_quoted(str(value))}" for key, value in query.items() if value is not None)
    return f"{text}?{given}" if given else text


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _shown(value: Any) -> Any:
    """What a template shows of a value."""
    if value is None:
        return ""
    return shown_text(value) if type(value) is str else value
