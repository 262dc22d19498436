# SPDX-License-Identifier: Apache-2.0
"""Tables of rules.

In a page::

    .. rules::

       :A-1: Requests are served in the order of ...
       :A-2: The pool looks at a request only ...

becomes a table of numbers and rules. ``:rule:`A-1``` links to a row, and so does ``#rule-A-1`` in a URL.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Rules(SphinxDirective):
    """One table. Its content is a field list: number, text."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        content = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, content)
        body = nodes.tbody()
        for field in content.findall(nodes.field):
            name, text = field
            body += self._row(name.astext(), text.children)
        group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (7, 93)), body, cols=2)
        return [nodes.table("", group, classes=["rules"])]

    def _row(self, name: str, text: list[nodes.Node]) -> nodes.row:
        anchor = f"rule-{name}"
        self.env.get_domain("std").note_object("rule", name, anchor, location=self.get_location())  # type: ignore[attr-defined]
        index = addnodes.index(entries=[("pair", f"{name}; rule", anchor, "", None)])
        # A literal is not broken at its hyphen.
        link = nodes.paragraph("", "", nodes.reference("", "", nodes.literal("", name), refid=anchor, internal=True))
        first = nodes.entry("", index, link, ids=[anchor])
        return nodes.row("", first, nodes.entry("", *text))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_object_type("rule", "rule", objname="rule")
    app.add_directive("rules", Rules)
    return {"parallel_read_safe": True}
