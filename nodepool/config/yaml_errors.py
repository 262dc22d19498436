# SPDX-License-Identifier: Apache-2.0
"""What is usually wrong where YAML cannot be parsed, in plain words. Pure."""

from __future__ import annotations

from typing import Final

#: What YAML reserves: a text cannot begin with one of these.
_RESERVED: Final = "@`%"
_INDENTATION: Final = ("did not find expected '-' indicator", "did not find expected key", "expected <block end>")


def explain(problem: str, lines: list[str], line: int, column: int, begun: tuple[int, int] | None) -> str:
    """A hint for an error of the parser; empty = none.

    :param problem: what the parser says.
    :param lines: of the file.
    :param line: where the error is, from 0, as ``column``.
    :param begun: line and column in which the list, mapping or text begins that the parser was reading.
    """
    text = lines[line] if line < len(lines) else ""
    char = text[column : column + 1]
    if char == "\t" or "\t" in text[: len(text) - len(text.lstrip())]:
        return "a tab character is used for indentation; YAML takes only spaces there"
    if "cannot start any token" in problem and char and char in _RESERVED:
        return f"a text that begins with {char!r} must be in quotes"
    if any(words in problem for words in _INDENTATION):
        return _indentation(lines, line, column, begun, "'-'" in problem)
    if "mapping values are not allowed" in problem:
        return _surplus_colon(lines, line, text)
    if "could not find expected ':'" in problem:
        return "a key without a ':' after it, or a line of a text that is indented too little"
    if "unexpected end of stream" in problem or "document indicator" in problem:
        if begun is not None:
            return f"a quote or a bracket that is opened in line {begun[0] + 1} is not closed"
        return "a quote or a bracket is not closed"
    if "',' or ']'" in problem or "',' or '}'" in problem:
        return "a ',' between two entries is missing, or a bracket is not closed"
    return ""


def _indentation(lines: list[str], line: int, column: int, begun: tuple[int, int] | None, in_list: bool) -> str:
    text = lines[line] if line < len(lines) else ""
    spaces = _spaces(text)
    if any(quote in text[spaces:column] for quote in "'\""):
        return "a text in quotes ends here, and something follows; a quote inside such a text must be doubled"
    if begun is None or begun[0] == line:
        return ""
    if in_list and spaces == begun[1]:
        return (
            f"the list that begins in line {begun[0] + 1} goes on with something else than '- '; "
            "what belongs to an entry must be further in"
        )
    return (
        f"wrong indentation: {_count(spaces)} before this line, {_count(_spaces(_above(lines, line)))} before the one "
        f"above, {_count(begun[1])} before what begins in line {begun[0] + 1}"
    )


def _surplus_colon(lines: list[str], line: int, text: str) -> str:
    before = _above(lines, line)
    key, colon, value = before.strip().partition(":")
    if key and not colon:
        return f"line {lines.index(before) + 1} has no ':' after its key"
    if key and value.strip() and _spaces(text) > _spaces(before):
        return "wrong indentation: this line is further in than the one above, which has a value already"
    return "a second ': ' in one line; a value with ': ' in it must be in quotes"


def _above(lines: list[str], line: int) -> str:
    """The nearest line above that has something in it."""
    return next((lines[number] for number in reversed(range(min(line, len(lines)))) if lines[number].strip()), "")


def _spaces(text: str) -> int:
    return len(text) - len(text.lstrip())


def _count(spaces: int) -> str:
    return "1 space" if spaces == 1 else f"{spaces} spaces"
