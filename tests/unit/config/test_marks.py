# SPDX-License-Identifier: Apache-2.0
"""YAML to values with line numbers, and what is refused."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodepool.config import marks
from nodepool.config.marks import Document, SourceText, parse, substitute
from nodepool.config.problems import Problems, Severity
from nodepool.exceptions import ConfigError


@pytest.fixture(params=["C", "Python"], autouse=True)
def _parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """libyaml need not be there."""
    if request.param == "Python":
        monkeypatch.setattr(marks, "_LOADER", yaml.SafeLoader)


def read(text: str) -> tuple[Document, list[str]]:
    problems = Problems()
    document = parse(SourceText("f", text), problems)
    return document, [str(problem) for problem in problems.all()]


class TestValues:
    @pytest.mark.parametrize(
        "text",
        [
            "a: 1\nb: [x, 2.5, true, ~, '3', \"4\", yes, 0x1f, 0o7, 1_000, 1:30, .inf, 1e3]",
            "a: &x {b: 1}\nc: *x\nd: [*x, *x]",
            "base: &base {a: 1, b: 2}\none: {<<: *base, b: 3}\ntwo: {b: 4, <<: [*base, {c: 5}]}",
            "? a\n: b\n2: c\n~: d\ntrue: e",
            "a: |\n  text\n  more\nb: >\n  folded\n  text",
            "a: 2024-01-31\nb: 2024-01-31 10:00:00",
            "a: !!str 1\nb: !!int '2'\nc: !!float 3\nd: ! 4",
            "'<<': 1\na: '<<'\nb: '='",
            "[]",
            "{}",
            "",
            "a:\n- b\n- c:\n    d: e",
        ],
    )
    def test_same_as_pyyaml(self, text: str) -> None:
        """PyYAML's safe loader defines what a file means."""
        document, problems = read(text)
        assert problems == []
        assert document.data == yaml.safe_load(text)

    def test_date(self) -> None:
        assert read("a: 2024-01-31")[0].data == {"a": datetime.date(2024, 1, 31)}

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(codec="utf-8")),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="ascii")), inner),
            max_leaves=20,
        )
    )
    def test_same_as_pyyaml_for_anything(self, value: Any) -> None:
        text = yaml.safe_dump(value, allow_unicode=True)
        # Not `value`: what PyYAML writes is not always what it reads.
        assert read(text)[0].data == yaml.safe_load(text)


class TestLines:
    TEXT = "a: 1\nb:\n  - c: 2\n    d: &d\n      - 3\n      - 4\ne: *d\nf: {<<: {g: 5}}"

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            ([], 1),
            (["a"], 1),
            (["b"], 2),
            (["b", 0], 3),
            (["b", 0, "c"], 3),
            (["b", 0, "d", 1], 6),
            (["e"], 7),
            (["e", 1], 6),
            (["f", "g"], 8),
            (["b", 0, "missing"], 3),
            (["b", 9, "missing"], 2),
            (["nothing"], 1),
            (["a", "deeper"], 1),
        ],
    )
    def test_line_of(self, path: list[Any], line: int) -> None:
        """The key's own line, or that of the nearest thing around it."""
        assert read(self.TEXT)[0].line_of(path) == line

    def test_empty(self) -> None:
        assert read("")[0].line_of(["a"]) is None

    def test_after_substitution(self) -> None:
        source = substitute("f", "a: %(NODEPOOL_X)\nb: 1\nb: 2", {"NODEPOOL_X": "[1,\n 2]"})
        problems = Problems()
        assert parse(source, problems).line_of(["b"]) == 3
        assert str(problems.all()[0]).startswith("f:3: b: the key 'b' is here again, first in line 2")


class TestProblems:
    def test_duplicate_keys(self) -> None:
        """Each is reported, at its place; the last value counts, as in Nodepool 11."""
        document, problems = read("a: 1\na: 2\nb:\n  - {c: 1, c: 2}\n")
        assert document.data == {"a": 2, "b": [{"c": 2}]}
        assert [problem.split(";")[0] for problem in problems] == [
            "f:2: a: the key 'a' is here again, first in line 1",
            "f:4: b[0].c: the key 'c' is here again, first in line 4",
        ]

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("2024-13-45", "looks like a date, but is none"),
            ("0b_", "looks like a whole number, but is none"),
            ("!!int x", "looks like a whole number, but is none"),
            ("!!bool maybe", "looks like true or false, but is none"),
            ("9" * 5000, "looks like a whole number, but is none"),
            ("!thing x", "the YAML tag '!thing' is not allowed"),
            ("!!python/name:os.system x", "is not allowed"),
        ],
    )
    def test_bad_scalars(self, value: str, expected: str) -> None:
        """Reported with line, and reading goes on."""
        document, problems = read(f"a: 1\nb: {value}\nc: 3\n")
        assert document.data["c"] == 3
        assert len(problems) == 1
        assert problems[0].startswith("f:2: b: ")
        assert expected in problems[0]

    def test_list_as_key(self) -> None:
        document, problems = read("? [a]\n: 1\nb: 2\n")
        assert document.data == {"b": 2}
        assert problems == ["f:1: a list cannot be a key"]

    def test_bad_merge(self) -> None:
        assert read("a: {<<: 3}")[1] == ["f:1: a: << needs a mapping or a list of mappings, not 3"]

    def test_unset_variable(self) -> None:
        problems = Problems()
        parse(SourceText("f", "a:\n  b: x %(NODEPOOL_Y)\n"), problems)
        assert problems.all()[0].severity is Severity.WARNING
        assert str(problems.all()[0]).startswith("f:2: a.b: the environment variable NODEPOOL_Y is not set")


def bomb(levels: int) -> str:
    """Billion laughs: each level has nine times the level before."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "line", "expected"),
        [
            ("a: [1 }", 1, "not YAML"),
            ("a: 1\nb\nc: 2", 3, "not YAML"),
            ("a:\n\t- b", 2, "not YAML"),
            ("a: %(NODEPOOL_X)", 1, "the environment variable NODEPOOL_X is not set"),
            ("a: 1\n---\nb: 1", 2, "a second YAML document"),
            ("a: *b", 1, "there is no &b above"),
            ("a: &a [*a]", 1, "contains it"),
            ("a: 1\nb: !!python/object:os.system {}", 2, "is not allowed"),
            ("a: !!set {b, c}", 1, "is not allowed"),
            (bomb(9), 7, "aliases expand to more than"),
            ("[" * 100_000, 1, "nested more than 50 levels"),
            ("\n".join("  " * n + "a:" for n in range(60)), 51, "nested more than 50 levels"),
            (
                "a0: &a0 []\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 99)),
                50,
                "nested more than 50 levels",
            ),
        ],
    )
    def test_one_line(self, text: str, line: int, expected: str) -> None:
        """One clear message that says where."""
        with pytest.raises(ConfigError) as caught:
            read(text)
        message = str(caught.value)
        assert message.startswith(f"f:{line}:")
        assert expected in message
        assert len(message.splitlines()) == 1

    @pytest.mark.parametrize("text", ["a: \0", "a: \ud800", "\x07"])
    def test_odd_characters(self, text: str) -> None:
        with pytest.raises(ConfigError, match=r"^f:.* not (YAML|UTF-8)"):
            read(text)

    def test_wide_but_honest(self) -> None:
        """Sharing by aliases as in real files is fine."""
        pool = "pool: &pool [" + ", ".join(f"{{name: l{n}, x: 1}}" for n in range(2000)) + "]\n"
        document, problems = read(pool + "\n".join(f"p{n}: *pool" for n in range(20)))
        assert problems == []
        assert len(document.data["p19"]) == 2000
