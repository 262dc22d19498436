# SPDX-License-Identifier: Apache-2.0
"""nodepool.logconfig: reference/commands 7."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool import log_names, logconfig

ETC = Path(__file__).resolve().parents[2] / "etc"


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "nodepool.NodePool", "levelname": "INFO", "msg": message, "args": args})
    vars(made).update(extra)
    return made


class Capture(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def captured() -> Iterator[tuple[logging.Logger, Capture]]:
    log, handler = logging.getLogger("nodepool.test_logconfig"), Capture()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield log, handler
    log.removeHandler(handler)


class TestAnnotatedLogger:
    def test_prefix_has_all_ids_in_order(self, captured: tuple[logging.Logger, Capture]) -> None:
        """reference/commands 7: [e: ..] [node_request: ..] [node: ..], in this order."""
        log, handler = captured
        logconfig.get_annotated_logger(log, event_id="E", node_request_id="R", node_id="N").info("says %s", "hello")
        assert handler.records[0].getMessage() == "[e: E] [node_request: R] [node: N] says hello"

    def test_unknown_ids_are_left_out(self, captured: tuple[logging.Logger, Capture]) -> None:
        log, handler = captured
        logconfig.get_annotated_logger(log, node_id="N").info("x")
        logconfig.get_annotated_logger(log).info("y")
        assert [r.getMessage() for r in handler.records] == ["[node: N] x", "y"]

    def test_record_has_fields(self, captured: tuple[logging.Logger, Capture]) -> None:
        """The ids are attributes too, next to the caller's own extra."""
        log, handler = captured
        logconfig.get_annotated_logger(log, "E", "R").info("x", extra={"pool": "main"})
        found = vars(handler.records[0])
        assert (found["event_id"], found["node_request"], found["pool"]) == ("E", "R", "main")
        assert "node" not in found

    def test_annotating_again_keeps_ids(self, captured: tuple[logging.Logger, Capture]) -> None:
        log, handler = captured
        outer = logconfig.get_annotated_logger(log, "E", "R")
        logconfig.get_annotated_logger(outer, node_request_id="R2", node_id="N").info("x")
        assert handler.records[0].getMessage() == "[e: E] [node_request: R2] [node: N] x"

    def test_foreign_ids_are_harmless(self, captured: tuple[logging.Logger, Capture]) -> None:
        """An event id comes from another program: no format character and no line break of it may act."""
        log, handler = captured
        logconfig.get_annotated_logger(log, event_id="a%sb\nc").info("x %s", 1)
        assert handler.records[0].getMessage() == "[e: a?sb?c] x 1"

    def test_long_ids_are_cut(self, captured: tuple[logging.Logger, Capture]) -> None:
        logger, output = captured
        logconfig.get_annotated_logger(logger, event_id="e" * 100_000).info("x")
        assert len(output.records[0].getMessage()) < 300

    def test_level_off_costs_nothing(self, captured: tuple[logging.Logger, Capture]) -> None:
        class Costly:
            def __str__(self) -> str:
                raise AssertionError("formatted although the level is off")

        log, handler = captured
        logconfig.get_annotated_logger(log, event_id=Costly()).debug("x")  # type: ignore[arg-type]
        assert not handler.records

    def test_caller_is_found(self, captured: tuple[logging.Logger, Capture]) -> None:
        log, handler = captured
        logconfig.get_annotated_logger(log, event_id="E").info("x")
        assert handler.records[0].filename == Path(__file__).name


class TestContextLogger:
    def test_ids_of_the_request_at_hand(self, captured: tuple[logging.Logger, Capture]) -> None:
        """J-5: of a part that does not know it."""
        logger, output = captured
        part = logconfig.ContextLogger(logger)
        request = logconfig.get_annotated_logger(logger, event_id="E", node_request_id="1", pool="main")
        with logconfig.OnBehalfOf(request):
            part.info("x %s", 1, extra={"pool": "other"})
        part.info("y")
        first, second = output.records
        assert (first.getMessage(), vars(first)["event_id"]) == ("[e: E] [node_request: 1] x 1", "E")
        assert vars(first)["pool"] == "other"
        assert second.getMessage() == "y"

    def test_error_inside(self, captured: tuple[logging.Logger, Capture]) -> None:
        """J-5: the next message is not about the same request."""
        logger, output = captured
        with pytest.raises(ValueError, match="no"), logconfig.OnBehalfOf(logconfig.get_annotated_logger(logger, "E")):
            raise ValueError("no")
        logconfig.ContextLogger(logger).info("x")
        assert [record.getMessage() for record in output.records] == ["x"]


class TestMultiLineFormatter:
    def test_continuation_lines_repeat_the_prefix(self) -> None:
        """reference/commands 7: continuation lines get the same prefix plus two blanks."""
        formatter = logconfig.MultiLineFormatter("%(levelname)s %(name)s: %(message)s")
        assert formatter.format(record("one\n%s", "two")).splitlines() == [
            "INFO nodepool.NodePool: one",
            "INFO nodepool.NodePool:   two",
        ]

    def test_traceback(self) -> None:
        try:
            raise ValueError("broken")
        except ValueError as error:
            made = record("oops", exc_info=(ValueError, error, error.__traceback__))
        lines = logconfig.MultiLineFormatter().format(made).splitlines()
        assert len(lines) > 2
        assert all(" INFO nodepool.NodePool: " in line for line in lines)
        assert lines[-1].endswith(":   ValueError: broken")

    @pytest.mark.parametrize(
        ("said", "written"),
        [
            ("a\rb", "a\\rb"),
            ("\x1b[2Jx\x07", "\\x1b[2Jx\\x07"),
            ("a\x85b\u2028c\u202ed", "a\\x85b\\u2028c\\u202ed"),
            ("\ud800", "\\ud800"),
            ("\x00", "\\x00"),
            ("gr\u00fc\u00dfe\t\u2713", "gr\u00fc\u00dfe\t\u2713"),
        ],
    )
    def test_text_of_others_does_not_act(self, said: str, written: str) -> None:
        """No line break, escape sequence or broken character of a host, a cloud or a znode gets into the log."""
        assert logconfig.MultiLineFormatter("%(message)s").format(record(said)) == written
        try:
            raise ValueError(said)
        except ValueError:
            made = record("x", exc_info=sys.exc_info())
        assert written in logconfig.MultiLineFormatter("%(message)s").format(made)

    def test_nobody_can_make_up_a_line(self) -> None:
        lines = (
            logconfig.MultiLineFormatter().format(record("h\n2026-01-01 00:00:00,000 ERROR nodepool: no")).split("\n")
        )
        assert len(lines) == 2
        assert lines[1].startswith(lines[0].removesuffix("h") + "  2026")

    def test_default_format(self) -> None:
        line = logconfig.MultiLineFormatter().format(record("x"))
        assert line.endswith(" INFO nodepool.NodePool: x")

    def test_short_names(self) -> None:
        """J-2: what is written is shorter; the record, which other handlers get too, keeps its name."""
        made = record("x\ny")
        made.name = log_names.request_handler(f"host-1-PoolWorker.cloud-1-main-{'a' * 32}")
        full = made.name
        first, second = logconfig.MultiLineFormatter(short_names=True).format(made).split("\n")
        assert first.endswith(" INFO nodepool.driver.NodeRequestHandler[cloud-1-main]: x")
        assert second.endswith(" INFO nodepool.driver.NodeRequestHandler[cloud-1-main]:   y")
        assert made.name == full
        assert f" INFO {full}: x" in logconfig.MultiLineFormatter().format(made)

    @pytest.mark.parametrize("name", ["nodepool.NodePool", "nodepool.driver.NodeRequestHandler[odd]", "a[b]"])
    def test_other_names_stay(self, name: str) -> None:
        """J-2."""
        made = record("x")
        made.name = name
        assert logconfig.MultiLineFormatter(short_names=True).format(made).endswith(f" INFO {name}: x")


class TestJSONFormatter:
    def test_one_object_a_line(self) -> None:
        made = record('a "quoted"\nmessage %s', 1, event_id="E", thing=Path("/x"))
        made.created = 0.25
        text = logconfig.JSONFormatter().format(made)
        assert "\n" not in text
        line = json.loads(text)
        assert line["message"] == 'a "quoted"\nmessage 1'
        assert line["timestamp"] == "1970-01-01T00:00:00.250000Z"
        assert (line["level"], line["logger"]) == ("INFO", "nodepool.NodePool")
        assert (line["event_id"], line["thing"]) == ("E", "/x")
        assert "args" not in line

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            (log_names.pool_worker("c-1", "main"), {"provider": "c-1", "pool": "main"}),
            (log_names.state_machine_launcher("c-1"), {"provider": "c-1"}),
            (log_names.static_provider("lab"), {"provider": "lab"}),
            ("nodepool.NodePool", {}),
        ],
    )
    def test_place_of_a_logger(self, name: str, expected: dict[str, str]) -> None:
        """J-2: provider and pool are keys."""
        made = record("x")
        made.name = name
        line = json.loads(logconfig.JSONFormatter().format(made))
        assert {key: line[key] for key in ("provider", "pool") if key in line} == expected

    def test_what_the_message_says_wins(self) -> None:
        """J-2."""
        made = record("x", pool="other")
        made.name = log_names.pool_worker("c-1", "main")
        line = json.loads(logconfig.JSONFormatter().format(made))
        assert (line["provider"], line["pool"]) == ("c-1", "other")

    def test_annotated_but_not_in_the_text(self, captured: tuple[logging.Logger, Capture]) -> None:
        """J-2."""
        logger, output = captured
        logconfig.get_annotated_logger(logger, node_id="1", provider="p", pool=None).info("x")
        (made,) = output.records
        assert made.getMessage() == "[node: 1] x"
        assert vars(made)["provider"] == "p"
        assert "pool" not in vars(made)

    def test_exception_and_stack(self) -> None:
        try:
            raise ValueError("broken")
        except ValueError as error:
            made = record("oops", exc_info=(ValueError, error, error.__traceback__), stack_info="the stack")
        line = json.loads(logconfig.JSONFormatter().format(made))
        assert line["exception"].endswith("ValueError: broken")
        assert line["stack"] == "the stack"


@pytest.mark.usefixtures("clean_logging")
class TestConfiguration:
    def test_default_levels(self, capsys: pytest.CaptureFixture[str]) -> None:
        """reference/commands 7: nodepool INFO; requests, openstack and kazoo WARN; root silent."""
        logconfig.apply_config(logconfig.default_config())
        logging.getLogger("nodepool.NodePool").info("shown")
        logging.getLogger("nodepool.NodePool").debug("hidden")
        logging.getLogger("nodepool.stack_dump").debug("stacks")
        for name in ("requests", "openstack", "kazoo"):
            logging.getLogger(name).info("hidden")
            logging.getLogger(name).warning("shown")
        logging.getLogger("elsewhere").error("hidden")
        out, err = capsys.readouterr()
        assert [line.split(" ", 3)[3] for line in out.splitlines()] == [
            "nodepool.NodePool: shown",
            "nodepool.stack_dump: stacks",
            "requests: shown",
            "openstack: shown",
            "kazoo: shown",
        ]
        assert err == ""

    def test_file_is_reopened_after_rotation(self, tmp_path: Path) -> None:
        file = tmp_path / "nodepool.log"
        logconfig.apply_config(logconfig.default_config(filename=str(file)))
        log = logging.getLogger("nodepool.NodePool")
        log.info("first")
        os.rename(file, tmp_path / "nodepool.log.1")
        log.info("second")
        assert "second" in file.read_text(encoding="utf-8")

    def test_unwritable_file_is_one_clear_line(self, tmp_path: Path) -> None:
        with pytest.raises(logconfig.LogConfigError) as caught:
            logconfig.apply_config(logconfig.default_config(filename=str(tmp_path / "missing" / "x.log")))
        assert "No such file or directory" in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("name", ["logging.yaml", "logging-json.yaml", "logging.conf"])
    def test_examples_work(self, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = (ETC / name).read_text(encoding="utf-8").replace("/var/log/nodepool", str(tmp_path))
        (tmp_path / name).write_text(text, encoding="utf-8")
        logconfig.load_config(str(tmp_path / name))
        logging.getLogger("nodepool.NodePool").info("one\ntwo")
        logging.getLogger("nodepool.stack_dump").debug("stacks")
        log = tmp_path / "nodepool.log"
        lines = (log.read_text(encoding="utf-8") if log.exists() else capsys.readouterr().out).splitlines()
        if name == "logging-json.yaml":
            assert [json.loads(line)["message"] for line in lines] == ["one\ntwo", "stacks"]
        else:
            ends = [line.split(" ", 3)[3] for line in lines]
            assert ends == ["nodepool.NodePool: one", "nodepool.NodePool:   two", "nodepool.stack_dump: stacks"]

    def test_json_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "log.json").write_text(json.dumps(logconfig.default_config()), encoding="utf-8")
        logconfig.load_config(str(tmp_path / "log.json"))
        logging.getLogger("nodepool.NodePool").info("shown")
        assert "shown" in capsys.readouterr().out

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(logconfig.LogConfigError, match="no such logging configuration file"):
            logconfig.load_config(str(tmp_path / "log.yaml"))

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("a.yaml", "[1, 2]"),
            ("a.yaml", "{"),
            ("a.yaml", "version: 1\nhandlers: {x: {class: no.such.Handler}}"),
            ("a.json", "{"),
            ("a.json", '{"version": 2}'),
            ("a.conf", "no ini"),
            ("a.conf", "[loggers]\nkeys=root\n"),
        ],
    )
    def test_bad_file_is_named(self, name: str, text: str, tmp_path: Path) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(logconfig.LogConfigError) as caught:
            logconfig.load_config(str(tmp_path / name))
        assert str(tmp_path / name) in str(caught.value)
        assert "\n" not in str(caught.value)
