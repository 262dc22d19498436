# SPDX-License-Identifier: Apache-2.0
"""Tables of configuration keys, made of their declarations (`nodepool.model.config_keys`).

In a page::

    .. config-keys:: nodepool.driver.openstack.config.OpenStackPool
       :without: nodepool.driver.config.ConfigPool

becomes the table of the keys of that section, without those that it has of the other class.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from nodepool.config.schema import describe
from nodepool.driver.framework.key_schema import value_schema
from nodepool.model.config_keys import From, Key, Sections, keys_of

DIRECTIVE: Final = re.compile(r"^\.\. config-keys:: (\S+)\n(?:   :without: (\S+)\n)?", re.MULTILINE)
_HEAD: Final = (".. list-table::", "   :header-rows: 1", "   :widths: 22 18 14 46", "")


def section(path: str) -> type:
    """The class that a directive names."""
    module, _, name = path.rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found


def expand(text: str) -> str:
    """A page with its tables."""
    return DIRECTIVE.sub(lambda match: "\n".join(table(match[1], match[2])) + "\n", text)


def table(path: str, without: str | None = None) -> Iterator[str]:
    """The lines of one table."""
    yield from _HEAD
    yield from _row("Key", "Type", "Default", "Meaning")
    left_out = keys_of(section(without)) if without else ()
    for key in keys_of(section(path)):
        if all(key is not other for other in left_out):
            yield from _row(f"``{key.name}``", type_text(key), default_text(key), key.help)


def type_text(key: Key) -> str:
    """What a value may be, in the words of the messages about a wrong one."""
    kind = "list of sections" if isinstance(key.kind, Sections) else describe(value_schema(key.kind))
    return "; ".join(filter(None, (kind.removeprefix("a "), key.unit)))


def default_text(key: Key) -> str:
    """What is so when the key is not given."""
    default: Any = key.default
    if key.default_text or key.required:
        return key.default_text or "required"
    if isinstance(default, From):
        return f"the {default.owner}'s"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, (int, float)):
        return "unlimited" if default == math.inf else f"{default:g}"
    return f"``{default}``" if default else "none"


def _row(first: str, *others: str) -> Iterator[str]:
    yield f"   * - {first}"
    for cell in others:
        yield f"     - {cell}"


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx. The tables are put into the text of a page before it is parsed."""

    def read(app: Any, page: str, source: list[str]) -> None:
        for match in DIRECTIVE.finditer(source[0]):
            app.env.note_dependency(importlib.import_module(match[1].rpartition(".")[0]).__file__)
        source[0] = expand(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
