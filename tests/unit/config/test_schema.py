# SPDX-License-Identifier: Apache-2.0
"""From voluptuous errors to problems with line, key, what is allowed and a guess."""

from __future__ import annotations

import decimal
from typing import Any

import pytest
import voluptuous as v

from nodepool.config.marks import SourceText, parse
from nodepool.config.problems import Problems, Severity
from nodepool.config.schema import Checker, describe
from nodepool.driver.config import connection_schema, integer, nonempty, number, port
from nodepool.driver.framework.key_schema import value_schema
from nodepool.model.config_keys import Text

LABEL = {v.Required("name"): str, "cores": int, "tags": {str: str}, "zones": [str]}
SCHEMA = v.Schema({v.Required("name"): nonempty(), "port": port(), "pools": [{"labels": [LABEL]}], "mode": v.In(["a"])})


def check(text: str, schema: Any = SCHEMA) -> list[str]:
    problems = Problems()
    document = parse(SourceText("f", text), problems)
    fine = Checker(schema).check(document.data, document, [], problems)
    assert fine == (not problems.errors(strict=False))
    return [str(problem) for problem in problems.all()]


def test_good() -> None:
    assert check("name: x\nport: 22\npools: [{labels: [{name: a, cores: 1, tags: {a: b}, zones: [z]}]}]") == []


def test_every_item_of_every_list() -> None:
    """Voluptuous alone stops at the first bad item."""
    text = """name: x
pools:
  - labels:
      - name: 1
      - cores: x
        name: b
      - nam: c
  - labels:
      - name: d
        zones: [1, a, 2]
      - 7
"""
    assert check(text) == [
        "f:4: pools[0].labels[0].name: expected a text, got 1; put it in quotes",
        "f:5: pools[0].labels[1].cores: expected a whole number, got 'x'",
        "f:7: pools[0].labels[2].nam: unknown key, did you mean 'name'? (allowed: cores, name, tags, zones)",
        "f:7: pools[0].labels[2].name: required, but missing",
        "f:10: pools[1].labels[0].zones[0]: expected a text, got 1; put it in quotes",
        "f:10: pools[1].labels[0].zones[2]: expected a text, got 2; put it in quotes",
        "f:11: pools[1].labels[1]: expected a mapping, got 7",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: ''", "f:1: name: expected a text, not empty, got ''"),
        ("name: x\nport: 0", "f:2: port: expected a whole number, 1 to 65535, got 0"),
        ("name: x\npools: 3", "f:2: pools: expected a list of mappings, got 3"),
        ("name: x\npools:", "f:2: pools: expected a list of mappings, got nothing (null)"),
        ("name: x\nmode: b", "f:2: mode: expected one of a, got 'b'"),
        ("name: x\nmode: true", "f:2: mode: expected one of a, got true; put it in quotes"),
        ("[]", "f:1: expected a mapping, got a list"),
        ("port: 1", "f:1: name: required, but missing"),
        ("name: x\npools: [{labels: {}}]", "f:2: pools[0].labels: expected a list of mappings, got a mapping"),
    ],
)
def test_words(text: str, expected: str) -> None:
    assert check(text) == [expected]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("boot-timeout: 2m", "; write 120 (seconds)"),
        ("boot-timeout: 1h30m", "; write 5400 (seconds)"),
        ("boot-timeout: soon", ""),
        ("size: 2m", ""),
    ],
)
def test_duration_with_a_unit(text: str, hint: str) -> None:
    """What to write instead, where seconds are meant."""
    key, _, got = text.partition(": ")
    schema = {"boot-timeout": number(0), "size": integer(0)}
    noun = "a number" if key == "boot-timeout" else "a whole number"
    assert check(text, schema) == [f"f:1: {key}: expected {noun}, 0 or more, got '{got}'{hint}"]


def test_unknown_key_is_no_error_by_itself() -> None:
    problems = Problems()
    document = parse(SourceText("f", "name: x\nprot: 1"), problems)
    assert Checker(SCHEMA).check(document.data, document, [], problems)
    assert [problem.severity for problem in problems.all()] == [Severity.UNKNOWN_KEY]


def test_place_in_the_document() -> None:
    """The value may be a part of the document."""
    problems = Problems()
    document = parse(SourceText("f", "a:\n  b:\n    - name: 1\n"), problems)
    Checker([LABEL]).check(document.data["a"]["b"], document, ["a", "b"], problems)
    assert str(problems.all()[0]).startswith("f:3: a.b[0].name: ")


def test_alternatives_and_own_checks() -> None:
    """A driver's schema may combine, and may raise its own words with a path."""

    def no_twins(value: dict[str, Any]) -> dict[str, Any]:
        if value["a"] == value["b"]:
            raise v.Invalid("a and b must differ", path=["b"])
        return value

    schema = v.Schema(v.All({"a": v.Any(str, [str]), "b": v.Any(str, [str])}, no_twins))
    assert check("a: x\nb: [y]", schema) == []
    assert check("a: x\nb: x", schema) == ["f:2: b: a and b must differ"]
    assert check("a: 1\nb: x", schema) == ["f:1: a: expected a text or a list of texts, got 1; put it in quotes"]
    assert check("a: [1]\nb: x", schema) == ["f:1: a[0]: expected a text, got 1; put it in quotes"]
    assert check("a: x\nb: x\nc: 1", schema) == ["f:3: c: unknown key (allowed: a, b)"]


def test_options_of_a_schema() -> None:
    """``required`` and ``extra`` count inside lists too."""
    schema = v.Schema({"a": [{"b": int}]}, required=True, extra=v.ALLOW_EXTRA)
    assert check("a: [{b: 1, c: 2}]\nd: 1", schema) == []
    assert check("a: [{c: 2}]", schema) == ["f:1: a[0].b: required, but missing"]


def test_any_further_key() -> None:
    schema = {v.Required("name"): str, v.Extra: integer()}
    assert check("name: a\nx: 1", schema) == []
    assert check("name: a\nx: b", schema) == ["f:2: x: expected a whole number, got 'b'"]


def test_secrets_are_not_shown() -> None:
    text = "env-vars: {A: 4711}\npassword: 4711"
    found = check(text, {"env-vars": {str: str}, "password": str})
    assert found == [
        "f:1: env-vars.A: expected a text, got something else; put it in quotes",
        "f:2: password: expected a text, got something else; put it in quotes",
    ]


def test_not_a_schema() -> None:
    with pytest.raises(v.SchemaError):
        Checker({"a": decimal.Decimal(1)})


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (integer(), "a whole number"),
        (integer(0), "a whole number, 0 or more"),
        (integer(maximum=3), "a whole number, 3 or less"),
        (number(), "a number"),
        (v.All(v.Any(int, float), v.Range(min=0, min_included=False)), "a whole number or a number, more than 0"),
        (v.Range(max=3, max_included=False), "less than 3"),
        (v.Range(), ""),
        (value_schema(Text(choices=("ssh", "winrm"))), "one of ssh, winrm"),
        (connection_schema()["shell-type"], "a text or null"),
        ([int], "a list"),
        ([], "a list"),
        ([str, int], "a list"),
        ({}, "a mapping"),
        (v.Schema(bool), "true or false"),
        ("word", "'word'"),
        (7, "7"),
        (v.Length(min=3), ""),
        (v.Any("a", "b"), "'a' or 'b'"),
        (len, ""),
        (v.Any(len, msg="expected a long one"), "a long one"),
    ],
)
def test_describe(schema: Any, expected: str) -> None:
    assert describe(schema) == expected


def test_no_words_for_it() -> None:
    """Then voluptuous speaks."""
    assert check("a: x", {"a": v.Coerce(int)}) == ["f:1: a: expected int, got 'x'"]
