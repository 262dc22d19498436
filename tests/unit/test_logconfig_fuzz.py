# SPDX-License-Identifier: Apache-2.0
"""reference/commands 7: a logging configuration is used, or refused in one line that names the file."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nodepool import logconfig
from tests.support.odd_json import damaged

GOOD: dict[str, Any] = {
    "version": 1,
    "formatters": {"lines": {"()": "nodepool.logconfig.MultiLineFormatter"}, "plain": {"format": "%(message)s"}},
    "handlers": {"nowhere": {"class": "logging.NullHandler", "level": "INFO", "formatter": "lines"}},
    "loggers": {"fuzz": {"level": "INFO", "handlers": ["nowhere"], "propagate": False}},
}
PLACES: list[tuple[str, ...]] = [
    *((key,) for key in (*GOOD, "root", "filters", "incremental", "disable_existing_loggers")),
    *(("formatters", "plain", key) for key in ("format", "style", "class", "()")),
    *(("handlers", "nowhere", key) for key in ("class", "level", "formatter", "filters", "stream")),
    *(("loggers", "fuzz", key) for key in ("level", "handlers", "propagate", "filters")),
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=4)
    | st.sampled_from(["%(x", "{", "ext://nowhere.at.all", "cfg://handlers", "logging.NullHandler", "INFO", "no.such"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("a(.)", max_size=3), inner, max_size=2),
    max_leaves=4,
)
fuzz = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Only the loggers that the configurations name, and the root, are changed."""
    loggers = [logging.getLogger(name) for name in ("", "fuzz")]
    before = [(log.level, list(log.handlers), list(log.filters), log.propagate, log.disabled) for log in loggers]
    yield
    for log, (level, handlers, filters, propagate, disabled) in zip(loggers, before, strict=True):
        log.setLevel(level)
        log.handlers, log.filters, log.propagate, log.disabled = handlers, filters, propagate, disabled


def check(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    before = list(logging.root.handlers)
    try:
        logconfig.load_config(str(file))
    except logconfig.LogConfigError as error:
        check_text(file, str(error))
    finally:
        logging.root.handlers = before


def check_text(file: Path, text: str) -> None:
    assert text.startswith(str(file))
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("name", ["logging.yaml", "logging.json", "logging.conf"])
@fuzz
@example(b"[" * 3000)
@example(b"a: &a [*a]")
@example(b"handlers: &a {x: *a}\nversion: 1")
@example(b"!!python/object/apply:os.abort []")
@example(b'{"version": ' + b"9" * 5000 + b"}")
@example(b"\xff\xfe")
@example(b"[loggers]\nkeys=%(x)s\n")
@given(data=st.binary(max_size=40))
def test_any_bytes(tmp_path: Path, name: str, data: bytes) -> None:
    check(tmp_path / name, data)


@pytest.mark.parametrize("name", ["logging.yaml", "logging.json"])
@fuzz
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_damaged_file(tmp_path: Path, name: str, changes: list[tuple[tuple[str, ...], Any]]) -> None:
    data = damaged({**GOOD, "incremental": False, "disable_existing_loggers": False}, changes)
    # True would silence the loggers of all other tests.
    data["disable_existing_loggers"] = False
    text = json.dumps(data) if name.endswith(".json") else yaml.safe_dump(data)
    check(tmp_path / name, text.encode())
