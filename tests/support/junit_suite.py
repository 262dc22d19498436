# SPDX-License-Identifier: Apache-2.0
"""JUnit files as pytest writes them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree


def case(
    classname: str,
    name: str,
    *,
    seconds: float = 0.0,
    failure: str | None = None,
    error: str | None = None,
    skipped: bool = False,
    out: str | None = None,
) -> ElementTree.Element:
    """A test: it passed, if nothing else is said. :param seconds: that it took. :param out: what it printed."""
    element = ElementTree.Element("testcase", classname=classname, name=name, time=str(seconds))
    for kind, text in (("failure", failure), ("error", error), ("system-out", out)):
        if text is not None:
            ElementTree.SubElement(element, kind).text = text
    if skipped:
        ElementTree.SubElement(element, "skipped")
    return element


def write_suite(path: Path, *cases: ElementTree.Element) -> Path:
    """Write a file with the tests of one run; returns its path."""
    root = ElementTree.Element("testsuites")
    counts = {
        name: str(sum(found.find(kind) is not None for found in cases))
        for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    suite = ElementTree.SubElement(root, "testsuite", {"tests": str(len(cases)), **counts})
    suite.extend(cases)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    return path
