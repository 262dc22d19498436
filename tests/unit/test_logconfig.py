# SPDX-License-Identifier: Apache-2.0
"""Logging (reference/commands 7): ids and places in each line, texts of others that do nothing, and configurations."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.log_names import pool_worker, request_handler, state_machine_launcher, static_provider
from nodepool.logconfig import (
    ContextLogger,
    JSONFormatter,
    LogConfigError,
    MultiLineFormatter,
    OnBehalfOf,
    apply_config,
    default_config,
    get_annotated_logger,
    load_config,
)
from tests.support.tables import rows

ETC = Path(__file__).resolve().parents[2] / "etc"


def record(message: str, *args: object, name: str = "nodepool.NodePool", **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": name, "levelname": "INFO", "msg": message, "args": args})
    vars(made).update(extra)
    return made


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[logging.Logger]:
    with caplog.at_level(logging.INFO, "nodepool.test"):
        yield logging.getLogger("nodepool.test")


@rows(__file__, "test_ids")
def test_ids(log: logging.Logger, caplog: pytest.LogCaptureFixture, ids: dict[str, Any], text: str) -> None:
    """reference/commands 7, J-2: in this order; the record has them, and provider and pool, as attributes, too."""
    get_annotated_logger(log, **ids).info("x %s", 1, extra={"more": 2})
    (made,) = caplog.records
    assert (made.getMessage(), made.filename) == (text, Path(__file__).name)
    names = {"event_id": "event_id", "node_request_id": "node_request", "node_id": "node", "provider": "provider"}
    wanted = {names[name]: value for name, value in ids.items() if value and "\n" not in value}
    assert vars(made).items() >= {**wanted, "more": 2}.items()
    assert not {*names.values(), "pool"} - set(wanted) - {"event_id"} & set(vars(made))


def test_ids_of_the_request_at_hand(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    """J-5: of a part that does not know it. After an error the next message is not about the same request."""
    part, request = ContextLogger(log), get_annotated_logger(log, "E", "1", pool="main")

    def fail() -> None:
        with OnBehalfOf(request):
            part.info("x %s", 1, extra={"pool": "other"})
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    part.info("y")
    first, second = caplog.records
    assert first.getMessage() == "[e: E] [node_request: 1] x 1"
    assert (vars(first)["event_id"], vars(first)["pool"], second.getMessage()) == ("E", "other", "y")


@rows(__file__, "test_text_of_others_does_not_act")
def test_text_of_others_does_not_act(text: str, written: str) -> None:
    """No line break, escape sequence or broken character of a host, a cloud or a znode gets into the log."""
    text = text.replace("surrogate", "\ud800")
    assert MultiLineFormatter("%(message)s").format(record(text)) == written
    try:
        raise ValueError(text)
    except ValueError:
        made = record("x", exc_info=sys.exc_info())
    assert written in MultiLineFormatter("%(message)s").format(made)


def test_lines() -> None:
    """Continuation lines get the same prefix plus two blanks, so that no text can look like another line."""
    found = MultiLineFormatter("%(levelname)s %(name)s: %(message)s").format(record("one\n%s", "two")).splitlines()
    assert found == ["INFO nodepool.NodePool: one", "INFO nodepool.NodePool:   two"]
    first, second = MultiLineFormatter().format(record("h\n2026-01-01 00:00:00,000 ERROR nodepool: no")).split("\n")
    assert first.endswith(" INFO nodepool.NodePool: h")
    assert second.startswith(first.removesuffix("h") + "  2026")
    try:
        raise ValueError("broken")
    except ValueError:
        made = record("oops", exc_info=sys.exc_info(), stack_info="the stack")
    line = json.loads(JSONFormatter().format(made))
    assert (line["exception"].splitlines()[-1], line["stack"]) == ("ValueError: broken", "the stack")
    lines = MultiLineFormatter().format(made).splitlines()
    assert len(lines) > 2
    assert all(" INFO nodepool.NodePool: " in line for line in lines)


@pytest.mark.parametrize(
    ("name", "short", "place"),
    [
        (request_handler(f"host-1-PoolWorker.c-1-main-{'a' * 32}"), "nodepool.driver.NodeRequestHandler[c-1-main]", {}),
        (pool_worker("c-1", "main"), "", {"provider": "c-1", "pool": "main"}),
        (state_machine_launcher("c-1"), "", {"provider": "c-1"}),
        (static_provider("lab"), "", {"provider": "lab"}),
        *((name, "", {}) for name in ("nodepool.NodePool", "nodepool.driver.NodeRequestHandler[odd]", "a[b]")),
    ],
)
def test_names_of_loggers(name: str, short: str, place: dict[str, str]) -> None:
    """J-2: what is written may be shorter, while the record keeps its name; in JSON provider and pool are keys."""
    made = record("x\ny", name=name)
    for line in MultiLineFormatter(short_names=True).format(made).split("\n"):
        assert f" INFO {short or name}: " in line
    assert made.name == name
    assert f" INFO {name}: x" in MultiLineFormatter().format(made)
    line = json.loads(JSONFormatter().format(made))
    if not short:
        assert {key: line[key] for key in ("provider", "pool") if key in line} == place
    assert json.loads(JSONFormatter().format(record("x", name=name, pool="other")))["pool"] == "other"


def test_json() -> None:
    """One object a line."""
    made = record('a "quoted"\nmessage %s', 1, event_id="E", thing=Path("/x"), created=0.25)
    text = JSONFormatter().format(made)
    assert "\n" not in text
    line = json.loads(text)
    wanted = {"message": 'a "quoted"\nmessage 1', "timestamp": "1970-01-01T00:00:00.250000Z", "level": "INFO"}
    assert line.items() >= {**wanted, "logger": "nodepool.NodePool", "event_id": "E", "thing": "/x"}.items()
    assert "args" not in line


@pytest.mark.usefixtures("clean_logging")
def test_default_levels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """reference/commands 7: nodepool INFO; requests, openstack and kazoo WARN; root silent. A file follows rotation."""
    apply_config(default_config())
    logging.getLogger("nodepool.NodePool").info("shown")
    logging.getLogger("nodepool.NodePool").debug("hidden")
    logging.getLogger("nodepool.stack_dump").debug("shown")
    for name in ("requests", "openstack", "kazoo"):
        logging.getLogger(name).info("hidden")
        logging.getLogger(name).warning("shown")
    logging.getLogger("elsewhere").error("hidden")
    out, err = capsys.readouterr()
    names = ("nodepool.NodePool", "nodepool.stack_dump", "requests", "openstack", "kazoo")
    assert [line.split(" ", 3)[3] for line in out.splitlines()] == [f"{name}: shown" for name in names]
    assert err == ""
    file = tmp_path / "nodepool.log"
    apply_config(default_config(filename=str(file)))
    logging.getLogger("nodepool.NodePool").info("first")
    os.rename(file, tmp_path / "nodepool.log.1")
    logging.getLogger("nodepool.NodePool").info("second")
    assert "second" in file.read_text(encoding="utf-8")


@pytest.mark.usefixtures("clean_logging")
@pytest.mark.parametrize("name", ["logging.yaml", "logging-json.yaml", "logging.conf", "default.json"])
def test_examples_work(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(default_config()) if name == "default.json" else (ETC / name).read_text(encoding="utf-8")
    (tmp_path / name).write_text(text.replace("/var/log/nodepool", str(tmp_path)), encoding="utf-8")
    load_config(str(tmp_path / name))
    logging.getLogger("nodepool.NodePool").info("one\ntwo")
    logging.getLogger("nodepool.stack_dump").debug("stacks")
    file = tmp_path / "nodepool.log"
    lines = (file.read_text(encoding="utf-8") if file.exists() else capsys.readouterr().out).splitlines()
    if name == "logging-json.yaml":
        assert [json.loads(line)["message"] for line in lines] == ["one\ntwo", "stacks"]
    else:
        ends = [line.split(" ", 3)[3] for line in lines]
        assert ends == ["nodepool.NodePool: one", "nodepool.NodePool:   two", "nodepool.stack_dump: stacks"]


def loads_or_refuses(file: Path, data: bytes) -> str:
    """What the error says."""
    file.write_bytes(data)
    before, text = list(logging.root.handlers), ""
    try:
        load_config(str(file))
    except LogConfigError as error:
        text = str(error)
    finally:
        logging.root.handlers = before
    assert not text or text.startswith(str(file))
    assert len(text.splitlines()) <= 1
    return text


@pytest.mark.usefixtures("clean_logging")
@rows(__file__, "test_bad_file")
def test_bad_file(name: str, text: str, tmp_path: Path) -> None:
    """reference/commands 7"""
    assert loads_or_refuses(tmp_path / name, text.encode())
    with pytest.raises(LogConfigError, match="no such logging configuration file"):
        load_config(str(tmp_path / "missing.yaml"))
    with pytest.raises(LogConfigError, match="No such file or directory"):
        apply_config(default_config(filename=str(tmp_path / "missing" / "x.log")))
