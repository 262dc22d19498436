# SPDX-License-Identifier: Apache-2.0
"""Filters of lists: ``status = RUNNING``, ``labels.a=b``, ``(name=x) OR (name=y)``. Pure.

The grammar of https://google.aip.dev/160 as far as Compute Engine documents it: comparisons with ``=``, ``!=``, ``:``,
``<``, ``<=``, ``>``, ``>=``, joined by ``AND`` (or nothing) and ``OR``, which binds more tightly; parentheses; ``NOT``
and ``-``; and the old form with ``eq`` and ``ne``, whose value is a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from simulators.base.messages import ApiError, Json

Condition = Callable[[Json], bool]

_TOKEN: Final = re.compile(r"""\s*(?:(\(|\)|!=|<=|>=|=|<|>|:)|"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s()=<>!:"']+))""")
_OPERATORS: Final = ("=", "!=", ":", "<", "<=", ">", ">=", "eq", "ne")


def read_filter(text: str) -> Condition:
    """What a filter lets through.

    :raises ApiError: 400, this is none.
    """
    return _FilterReader(text).read() if text.strip() else lambda _document: True


class _FilterReader:
    """Takes a filter apart."""

    def __init__(self, text: str) -> None:
        self._text = text
        #: Token, and whether it was in quotes.
        self._tokens: list[tuple[str, bool]] = []
        position = 0
        while position < len(text.rstrip()):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self._bad()
            position = found.end()
            mark, double, single, word = found.groups()
            if double is not None:
                self._tokens.append((re.sub(r"\\(.)", r"\1", double), True))
            elif single is not None:
                self._tokens.append((single, True))
            else:
                self._tokens.append((mark or word, False))
        self._next = 0

    def _bad(self) -> ApiError:
        return ApiError(400, f"Invalid value for field 'filter': '{self._text}'. Invalid list filter expression.")

    def read(self) -> Condition:
        condition = self._all_of()
        if self._peek() is not None:
            raise self._bad()
        return condition

    def _peek(self) -> str | None:
        """The next token, unless it was in quotes."""
        if self._next >= len(self._tokens):
            return None
        text, quoted = self._tokens[self._next]
        return f'"{text}' if quoted else text

    def _take(self) -> str:
        if self._next >= len(self._tokens):
            raise self._bad()
        self._next += 1
        return self._tokens[self._next - 1][0]

    def _all_of(self) -> Condition:
        conditions = [self._any_of()]
        while self._peek() not in (None, ")"):
            if self._peek() == "AND":
                self._take()
            conditions.append(self._any_of())
        return lambda document: all(condition(document) for condition in conditions)

    def _any_of(self) -> Condition:
        conditions = [self._term()]
        while self._peek() == "OR":
            self._take()
            conditions.append(self._term())
        return lambda document: any(condition(document) for condition in conditions)

    def _term(self) -> Condition:
        if self._peek() == "NOT":
            self._take()
            inner = self._term()
            return lambda document: not inner(document)
        if self._peek() == "(":
            self._take()
            inner = self._all_of()
            if self._peek() != ")":
                raise self._bad()
            self._take()
            return inner
        return self._comparison()

    def _comparison(self) -> Condition:
        field = self._take()
        negative = field.startswith("-") and len(field) > 1
        if self._peek() not in _OPERATORS:
            raise self._bad()
        operator, value = self._take(), self._take()
        compared = _comparison(field.removeprefix("-"), operator, value)
        return (lambda document: not compared(document)) if negative else compared


def _comparison(field: str, operator: str, value: str) -> Condition:
    parts = field.split(".")
    if operator in ("eq", "ne"):
        try:
            pattern = re.compile(value)
        except re.error:
            text = f"Invalid value for field 'filter': '{value}'. Invalid list filter expression."
            raise ApiError(400, text) from None

        def matches(document: Json) -> bool:
            return any(pattern.fullmatch(_text(found)) for found in _values(document, parts)) == (operator == "eq")

        return matches
    if operator == "!=":
        return lambda document: not any(_compare("=", _text(found), value) for found in _values(document, parts))
    return lambda document: any(_compare(operator, _text(found), value) for found in _values(document, parts))


def _values(content: Any, parts: list[str]) -> list[Any]:
    """All values of a field; lists have those of each entry."""
    if isinstance(content, list):
        return [found for entry in content for found in _values(entry, parts)]
    if not parts:
        return [] if content is None else [content]
    return _values(content.get(parts[0]), parts[1:]) if isinstance(content, dict) else []


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compare(operator: str, found: str, value: str) -> bool:
    if operator == ":":
        if value == "*":
            return True
        if value.endswith("*"):
            return found.startswith(value[:-1])
        # A part of it, by words.
        return value in re.split(r"[^\w-]+", found) or value == found
    if operator == "=":
        return found == value
    try:
        number, other = float(found), float(value)
    except ValueError:
        return _ordered(operator, (found > value) - (found < value))
    return _ordered(operator, (number > other) - (number < other))


def _ordered(operator: str, sign: int) -> bool:
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[operator]
