# SPDX-License-Identifier: Apache-2.0
"""How code, tests and documentation cite the reference (doc/source/reference)."""

from __future__ import annotations

import re
from typing import Final

#: Where a rule is defined.
DEFINITION: Final = re.compile(r"^\.\. rule:: ([A-Z]+-\d+)$", re.MULTILINE)
#: One letter, or two. ``UTF-8`` is none, a code such as ``L-43DA4232`` neither.
_ID: Final = r"(?<![\w.-])(?:(?P<letters>[A-Z]|AW|AZ|CM|GC|IV|KU|MT|OS|OV|TR|WP)-(?P<number>\d{1,3}))(?![\w-])(?!\.\d)"
_CITATION: Final = re.compile(_ID + r"(?:(?:`)?\s+to\s+(?:#\s+)?(?::rule:`)?(?P=letters)-(?P<last>\d{1,3})(?![\w-]))?")
_NUMBER: Final = r"\d+(?:\.\d+)?"
_SECTIONS: Final = re.compile(
    rf"(?<![\w/])reference/(?P<page>[a-z][a-z-]*)(?P<numbers> {_NUMBER}(?:(?:, | and | to ){_NUMBER}(?![\w-]))*)?"
)
_HEADING: Final = re.compile(rf"^({_NUMBER}) .*\n[-~=]{{3,}}$", re.MULTILINE)
_MARKDOWN: Final = re.compile(r"(?<![\w/.-])[\w./-]*\w\.md\b")


def citations(text: str) -> frozenset[str]:
    """Ids of the rules that a text names, each of a range (``A-2 to A-6``)."""
    found = set()
    for match in _CITATION.finditer(text):
        first = int(match["number"])
        for number in range(first, int(match["last"] or first) + 1):
            found.add(f"{match['letters']}-{number}")
    return frozenset(found)


def cited_sections(text: str) -> list[tuple[str, list[str]]]:
    """Pages of the reference that a text names, each with the numbers of the sections."""
    found = []
    for match in _SECTIONS.finditer(text):
        numbers: list[str] = []
        for word, number in re.findall(rf"(, | and | to | )({_NUMBER})", match["numbers"] or ""):
            if word == " to " and number.isdigit() and numbers[-1].isdigit():
                numbers += [str(between) for between in range(int(numbers[-1]) + 1, int(number) + 1)]
            else:
                numbers.append(number)
        found.append((match["page"], numbers))
    return found


def section_numbers(text: str) -> frozenset[str]:
    """Numbers of the headings of a page."""
    return frozenset(match[1] for match in _HEADING.finditer(text))


def section(text: str, title: str) -> str:
    """What stands below a heading, up to the next one of its kind.

    :raises ValueError: the page has no such heading.
    """
    head = f"{title}\n{'-' * len(title)}\n"
    rest = text[text.index(head) + len(head) :]
    following = re.search(r"^.+\n-{3,}$", rest, re.MULTILINE)
    return rest[: following.start()] if following else rest


def markdown_files(text: str) -> list[str]:
    """Markdown files that a text names."""
    return _MARKDOWN.findall(text)
