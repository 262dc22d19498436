# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in the files: they are loaded, or refused with a `ConfigError` that says where.

Issue 2, "Bad input": logged or refused clearly. A traceback of anything else would end the launcher's main loop turn.
"""

from __future__ import annotations

import argparse
import copy
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodepool.cmd.validate import validate_config
from nodepool.config.loader import load_config, load_zookeeper
from nodepool.config.problems import MAX_REPORTED, Problem, Severity
from nodepool.config.validator import validate, validate_here
from nodepool.exceptions import ConfigError

GOOD: dict[str, Any] = {
    "webapp": {"port": 8005, "listen_address": "127.0.0.1"},
    "elements-dir": "/e",
    "images-dir": "/i",
    "build-log-retention": 3,
    "zookeeper-servers": [{"host": "zk1", "port": 2281, "chroot": "/x"}],
    "zookeeper-tls": {"cert": "/c", "key": "/k", "ca": "/a"},
    "zookeeper-timeout": 10,
    "max-hold-age": 5,
    "labels": [{"name": "small", "min-ready": 1, "max-ready-age": 7}, {"name": "large"}],
    "diskimages": [
        {"name": "base", "abstract": True, "elements": ["a"], "env-vars": {"A": "1"}},
        {"name": "image", "parent": "base", "formats": ["raw"], "release": 12, "metadata": {"k": 1}},
    ],
    "providers": [
        {
            "name": "lab",
            "driver": "static",
            "pools": [{"name": "main", "nodes": [{"name": "h", "labels": ["small", "large"], "host-key": "k"}]}],
        },
        {
            "name": "memory",
            "driver": "fake",
            "pools": [{"name": "main", "priority": 2, "labels": [{"name": "small", "cores": 1}]}],
        },
        {
            "name": "cloud",
            "cloud": "somewhere",
            "diskimages": [{"name": "image"}],
            "pools": [
                {
                    "name": "main",
                    "node-attributes": {"a": 1},
                    "labels": [{"name": "large", "diskimage": "image", "min-ram": 1}],
                }
            ],
        },
    ],
    "tenant-resource-limits": [{"tenant-name": "t", "max-servers": 4, "L-1": 2}],
}

TEXTS = (
    "",
    "name",
    "labels",
    "pools",
    "driver",
    "fake",
    "static",
    "aws",
    "fak",
    "small",
    "image",
    "base",
    "winrm",
    "/",
)
#: Pieces of YAML that mean something.
PIECES = (
    *(
        "&a ",
        "*a",
        "<<: ",
        "{",
        "}",
        "[",
        "]",
        "- ",
        "? ",
        ": ",
        "\n",
        "  ",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "| ",
        "> ",
        "#",
    ),
    *(
        "!!map ",
        "!!seq ",
        "!!set ",
        "!!omap ",
        "!!pairs ",
        "!!int ",
        "!!float ",
        "!!bool ",
        "!!null ",
        "!!binary ",
        "!x ",
    ),
    *(
        "!!timestamp ",
        "!!str ",
        "!!merge ",
        "!!value ",
        "!!python/object:os.system ",
        "0x" + "f" * 5000,
        "9" * 5000,
        "1:30:00",
    ),
    *(
        "2024-13-45",
        "2024-01-01",
        ".nan",
        "-.inf",
        "=",
        "<<",
        "~",
        "yes",
        "%(NODEPOOL_FUZZ)",
        "\ufeff",
        "\x85",
        "\u2028",
        "\r",
    ),
    *("labels: ", "providers: ", "name: ", "diskimages: ", "zookeeper-servers: ", "pools: ", "driver: static"),
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    # Too long for repr().
    st.builds(lambda: 2**15000),
    st.floats(),
    st.sampled_from(TEXTS),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.dates(),
    st.binary(max_size=3),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3),
    max_leaves=8,
)

fuzz = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Dumper(yaml.SafeDumper):
    """Writes very long numbers, which ``str`` refuses."""


Dumper.add_representer(int, lambda dumper, data: dumper.represent_scalar("tag:yaml.org,2002:int", hex(data)))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


PLACES = list(places(GOOD))


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A good configuration with a few places replaced, removed or added to."""
    data = copy.deepcopy(GOOD)
    for path in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3)):
        owner: Any = data
        try:
            for part in path[:-1]:
                owner = owner[part]
            damage(owner, path[-1], draw)
        except (KeyError, IndexError, TypeError):
            # An earlier damage removed the place.
            continue
    text: str = yaml.dump(data, Dumper=Dumper, allow_unicode=True)
    return text


def damage(owner: Any, key: Any, draw: st.DrawFn) -> None:
    kind = draw(st.sampled_from(["replace", "remove", "add"]))
    if kind == "replace":
        owner[key] = draw(values)
    elif kind == "remove":
        del owner[key]
    elif isinstance(owner, list):
        owner.append(draw(st.sampled_from(owner) | values))
    else:
        owner[draw(scalars)] = draw(values)


def check(main: Path, secure: Path | None = None) -> None:
    """Use the files in every way there is."""
    second = None if secure is None else str(secure)
    reasons: list[str] = []
    found: list[Problem] = []
    for use in (
        lambda: load_config(str(main), second, strict=True),
        lambda: load_zookeeper(str(main), second),
        lambda: found.extend(validate(str(main))),
        lambda: found.extend(validate_here(str(main), second)),
    ):
        try:
            use()
        except ConfigError as error:
            reasons.append(str(error))
    for problem in found:
        # One line each, which says where.
        assert len(str(problem).splitlines()) == 1
        reasons.append(str(problem))
    for line in [line for reason in reasons for line in reason.splitlines() or [""]]:
        assert line.startswith((str(main), str(secure)))


def test_the_good_one_is_good(tmp_path: Path) -> None:
    """Otherwise the damaged ones would prove little."""
    file = tmp_path / "nodepool.yaml"
    file.write_text(yaml.safe_dump(GOOD), encoding="utf-8")
    assert [str(problem) for problem in validate(str(file)) if problem.severity is not Severity.WARNING] == []
    assert set(load_config(str(file)).providers) == {"lab", "memory", "cloud"}


@fuzz
@given(data=st.binary(max_size=60))
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "nodepool.yaml"
    file.write_bytes(data)
    check(file)


@fuzz
@given(pieces=st.lists(st.sampled_from(PIECES) | st.text(st.characters(codec="utf-8"), max_size=3), max_size=20))
def test_any_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[str]) -> None:
    monkeypatch.setenv("NODEPOOL_FUZZ", "{a: \n [\udcff")
    file = tmp_path / "nodepool.yaml"
    file.write_text("".join(pieces), encoding="utf-8", newline="")
    check(file)


@fuzz
@given(text=damaged())
def test_damaged_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "nodepool.yaml"
    file.write_text(text, encoding="utf-8")
    check(file)


@fuzz
@given(text=damaged())
def test_damaged_secure_file(tmp_path: Path, text: str) -> None:
    """G-15: the secure file is no more trusted than the other."""
    main, secure = tmp_path / "nodepool.yaml", tmp_path / "secure.yaml"
    main.write_text(yaml.safe_dump(GOOD), encoding="utf-8")
    secure.write_text(text, encoding="utf-8")
    check(main, secure)


@fuzz
@given(text=damaged())
def test_same_text_same_result(tmp_path: Path, text: str) -> None:
    """G-4: loading the same text twice gives equal configurations (``.nan`` is never equal, and is of no use)."""
    file = tmp_path / "nodepool.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        first = load_config(str(file))
    except ConfigError:
        return
    assert ".nan" in text or first == load_config(str(file))


#: Texts that mean much more than they are long.
BOMBS = {
    "deep lists": "[" * 100_000,
    "deep mappings": "{a: " * 100_000,
    "deep blocks": "\n".join(" " * depth + "a:" for depth in range(2000)),
    "aliases of aliases": "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{f'*a{n}, ' * 10}]\n" for n in range(30)),
    "merges of merges": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n + 1}: &a{n + 1} {{<<: [{f'*a{n}, ' * 10}], k{n}: 1}}\n" for n in range(30)),
    "itself": "providers: &a [*a]",
    "itself as a key": "&a {*a : 1}",
    "a long number": "max-hold-age: " + "9" * 1_000_000,
    "a long number of sixties": "max-hold-age: 1" + ":59" * 100_000,
    "a long number in hex": "max-hold-age: 0x" + "f" * 1_000_000,
    "many tags": "labels: " + "!!str " * 1000 + "x",
    "a long key": "x" * 1_000_000 + ": 1",
    "many anchors": "labels: [" + ", ".join(f"&a{n} x" for n in range(2000)) + "]",
    "many documents": "---\n" * 20_000,
    "many keys": "".join(f"key{n}: 1\n" for n in range(500)),
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_bombs(tmp_path: Path, text: str) -> None:
    """Refused at once: what they would expand to is never made. A message is not as long as what it is about."""
    file = tmp_path / "nodepool.yaml"
    file.write_text(text, encoding="utf-8")
    check(file)
    assert (
        validate_config(argparse.Namespace(config=str(file), secure=None, format="text", logconfig=None, debug=False))
        == 1
    )
    with pytest.raises(ConfigError) as caught:
        load_config(str(file), strict=True)
    assert max(map(len, str(caught.value).splitlines())) < 2000


def test_many_problems(tmp_path: Path) -> None:
    """A hopeless file does not flood the log, and the cost of reporting grows with the file, not with its square."""
    file = tmp_path / "nodepool.yaml"
    file.write_text("labels:\n" + "- 7\n" * 20_000, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(str(file), strict=True)
    assert len(str(caught.value).splitlines()) == MAX_REPORTED + 1
    assert len([problem for problem in validate(str(file)) if "got 7" in str(problem)]) == 20_000
