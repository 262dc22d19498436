# SPDX-License-Identifier: Apache-2.0
"""Tables of configuration keys, made of their declarations (`nodepool.model.config_keys`).

In a page::

    .. config-keys:: nodepool.driver.openstack.config.OpenStackPool
       :without: nodepool.driver.config.ConfigPool

becomes the table of the keys of that section, without those that it has of the other class::

    .. config-keys:: nodepool.driver.openstack.config.OpenStackProviderConfig
       :anchors: key-openstack

becomes that table and those of the sections within it, each key with an anchor such as ``key-openstack-pools-max-ram``.
What every provider and every pool has is left out. ::

    .. config-matrix::

becomes a table of all keys of providers with a column for each driver.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from nodepool.cmd.configuration import SHIPPED_SCHEMA
from nodepool.config.schema import describe
from nodepool.driver.config import ConfigPool, ProviderConfig, value_schema
from nodepool.model.config_keys import From, Key, Sections, keys_of

DIRECTIVE: Final = re.compile(
    r"^\.\. config-keys:: (\S+)\n(?:   :without: (\S+)\n)?(?:   :anchors: (\S+)\n)?", re.MULTILINE
)
MATRIX: Final = ".. config-matrix::\n"
_HEAD: Final = (".. list-table::", "   :header-rows: 1", "   :widths: 26 17 14 43", "")


def section(path: str) -> type:
    """The class that a directive names."""
    module, _, name = path.rpartition(".")
    found: type = getattr(importlib.import_module(module), name)
    return found


def expand(text: str) -> str:
    """A page with its tables."""
    text = text.replace(MATRIX, "\n".join(matrix()) + "\n")
    return DIRECTIVE.sub(lambda match: "\n".join(_of_directive(match)) + "\n", text)


def _of_directive(match: re.Match[str]) -> Iterator[str]:
    top, base, anchors = section(match[1]), match[2], match[3]
    return tree(top, anchors) if anchors else table(top, section(base) if base else None)


def tree(top: type, anchors: str, path: str = "") -> Iterator[str]:
    """The lines of the table of a section and of those within it, each below its heading."""
    base = next((base for base in (ProviderConfig, ConfigPool) if issubclass(top, base) and top is not base), None)
    if path:
        yield from ("", f"``{path}``", "~" * (len(path) + 4), "")
    yield from table(top, base, anchors)
    for key in keys_of(top):
        if isinstance(key.kind, Sections):
            yield from tree(key.kind.section, _anchor(anchors, key), f"{path}.{key.name}" if path else key.name)


def table(top: type, without: type | None = None, anchors: str = "") -> Iterator[str]:
    """The lines of one table."""
    yield from _HEAD
    yield from _row("Key", "Type", "Default", "Meaning")
    left_out = keys_of(without) if without else ()
    targets: set[str] = set()
    for key in keys_of(top):
        if all(key is not other for other in left_out):
            target = _anchor(anchors, key)
            # A key in capitals, which means the same as another one, has none.
            start = f".. _{target}:\n\n       " if anchors and target not in targets else ""
            targets.add(target)
            yield from _row(f"{start}``{key.name}``", type_text(key), default_text(key), key.help)


def matrix() -> Iterator[str]:
    """The lines of the table of all keys of providers: which driver has which, those that most have first."""
    schemas = json.loads(SHIPPED_SCHEMA.read_text(encoding="utf-8"))["$defs"]
    drivers = {name: set(_paths(schema)) for name, schema in schemas.items() if name != "fake"}
    order = Counter(path for paths in drivers.values() for path in paths)
    yield from (".. list-table::", "   :header-rows: 1", "   :class: matrix", "")
    yield from _row("Key", *drivers)
    for path in sorted(order, key=lambda path: (path.count("."), path.rpartition(".")[0], -order[path], path)):
        yield from _row(f"``{path}``", *("x" if path in paths else "" for paths in drivers.values()))


def _paths(schema: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, inner in schema.get("properties", {}).items():
        yield f"{above}{name}"
        yield from _paths(inner.get("items", inner), f"{above}{name}.")


def _anchor(anchors: str, key: Key) -> str:
    return f"{anchors}-{re.sub('[^a-z0-9]+', '-', key.name.lower())}"


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
