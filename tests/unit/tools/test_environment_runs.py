# SPDX-License-Identifier: Apache-2.0
"""Tox environments beside each other, within their budgets. For tox stands a shell that gets the name as ``$0``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from budgets import Environment
from environment_runs import Result, Run, Runner
from tests.support.wait import wait_for

LINT = Environment("lint", 60)
PY3 = Environment("py3", 600, tests=True)
DOCS = Environment("docs", 60)
#: Does not end by itself within any test, and has a child that would outlive it.
HANGS = "sleep 600 & echo child $!; wait"

Start = Callable[[Environment], Run]


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], Start]:
    """``start(script)``: starts an environment as this script of a shell."""
    return lambda script: lambda environment: Run(environment, ["sh", "-c", script], tmp_path)


@pytest.fixture
def start_hanging(start: Callable[[str], Start]) -> Start:
    """Starts what does not end by itself, and waits until its child is there."""

    def begin(environment: Environment) -> Run:
        run = start(HANGS)(environment)
        wait_for("the child is there", lambda: run.output.read_text().startswith("child "))
        return run

    return begin


class Shown:
    """Remembers what was reported."""

    def __init__(self) -> None:
        self.text: dict[str, str] = {}

    def __call__(self, run: Run, result: Result) -> None:
        assert result.environment is run.environment
        self.text[result.environment.name] = run.output.read_text()


def test_all_run_and_are_reported(start: Callable[[str], Start]) -> None:
    shown = Shown()
    results = Runner([[LINT, DOCS], [PY3]], start('echo "it is $0"; [ $0 != lint ]'), shown, 60).run()
    assert {result.environment: result.code for result in results} == {LINT: 1, DOCS: 0, PY3: 0}
    assert shown.text == {name: f"it is {name}\n" for name in ("lint", "docs", "py3")}
    assert [result.word for result in results if result.environment is LINT] == ["failed"]


def test_a_row_is_run_in_order(tmp_path: Path, start: Callable[[str], Start]) -> None:
    log = tmp_path / "log"
    Runner([[LINT, DOCS]], start(f"echo $0 begins >> {log}; echo $0 ends >> {log}"), Shown(), 60).run()
    assert log.read_text().splitlines() == ["lint begins", "lint ends", "docs begins", "docs ends"]


def test_rows_run_beside_each_other(tmp_path: Path, start: Callable[[str], Start]) -> None:
    """Each opens one end of a pipe, which blocks until somebody opens the other one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = f"if [ $0 = lint ]; then echo hello > {pipe}; else cat {pipe}; fi"
    shown = Shown()
    Runner([[LINT], [PY3]], start(script), shown, 60).run()
    assert shown.text == {"lint": "", "py3": "hello\n"}


def test_what_is_over_its_budget_is_ended_with_its_children(start_hanging: Start) -> None:
    shown = Shown()
    [result] = Runner([[Environment("docs", 0)]], start_hanging, shown, 60).run()
    assert result.word == "over its budget"
    assert result.code is not None
    assert result.code < 0
    _wait_gone(int(shown.text["docs"].split()[1]))


def test_what_is_ended_may_clean_up(tmp_path: Path, start: Callable[[str], Start]) -> None:
    """Also what outlives the first process, as a script that tox runs."""
    (tmp_path / "script").write_text(
        f"trap 'exit 1' TERM; trap 'sleep 1; touch {tmp_path}/clean' EXIT; touch {tmp_path}/ready; sleep 600"
    )
    run = start(f"sh {tmp_path}/script & wait")(Environment("docs", 0))
    wait_for("the script runs", (tmp_path / "ready").exists)
    assert run.end().code != 0
    assert (tmp_path / "clean").exists()


def test_after_the_whole_budget_nothing_is_started(start: Callable[[str], Start]) -> None:
    results = Runner([[LINT, DOCS]], start(HANGS), Shown(), -1).run()
    assert [(result.environment, result.code, result.word) for result in results] == [
        (LINT, None, "not run"),
        (DOCS, None, "not run"),
    ]


def test_an_interruption_leaves_nothing_running(start: Callable[[str], Start], start_hanging: Start) -> None:
    """The report of another one that ended is where it happens."""
    shown = Shown()

    def interrupted(run: Run, result: Result) -> None:
        shown(run, result)
        if result.environment is LINT:
            raise KeyboardInterrupt

    begin = {LINT: start("exit 0"), DOCS: start_hanging}
    runner = Runner([[LINT], [DOCS]], lambda environment: begin[environment](environment), interrupted, 60)
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert set(shown.text) == {"lint", "docs"}
    _wait_gone(int(shown.text["docs"].split()[1]))


def test_a_run_of_pytest_is_told_its_budget(monkeypatch: pytest.MonkeyPatch, start: Callable[[str], Start]) -> None:
    """So that it ends in order, with a list of what was slow."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-x")
    shown = Shown()
    Runner([[PY3], [LINT]], start('echo "$PYTEST_ADDOPTS"'), shown, 60).run()
    assert shown.text["lint"] == "-x\n"
    assert shown.text["py3"].startswith("-x --session-timeout=600 --durations=")


def test_a_run_of_pytest_has_some_time_to_end(start: Callable[[str], Start]) -> None:
    [result] = Runner([[Environment("py3", 0, tests=True)]], start("exit 3"), Shown(), 60).run()
    assert (result.code, result.word) == (3, "over its budget")


def test_after_an_environment_comes_its_second_run(tmp_path: Path, start: Callable[[str], Start]) -> None:
    """Before the next one of its row."""
    log, shown = tmp_path / "log", Shown()
    script = f"echo $0 >> {log}; exit 4"

    def after(run: Run, result: Result) -> Run | Result:
        if result.environment is LINT and result.code == 4:
            return start(f"echo again >> {log}; exit 0")(LINT)
        return result

    results = Runner([[LINT, DOCS]], start(script), shown, 60, after).run()
    assert [(result.environment, result.code) for result in results] == [(LINT, 0), (DOCS, 4)]
    assert log.read_text().split() == ["lint", "again", "docs"]
    assert set(shown.text) == {"lint", "docs"}


def test_what_was_ended_has_no_second_run(start_hanging: Start) -> None:
    asked: list[Result] = []

    def after(run: Run, result: Result) -> Run | Result:
        asked.append(result)
        return result

    shown = Shown()
    [result] = Runner([[Environment("docs", 0)]], start_hanging, shown, 60, after).run()
    assert result.word == "over its budget"
    assert not asked
    _wait_gone(int(shown.text["docs"].split()[1]))


def test_words() -> None:
    assert [Result(PY3, 0).word, Result(PY3, 0, unstable=2).word, Result(PY3, 1, unstable=1).word] == [
        "ok",
        "ok, 2 unstable",
        "failed",
    ]


def _wait_gone(pid: int) -> None:
    """Its parent was killed: whoever inherited it reaps it. A zombie counts as gone."""

    def gone() -> bool:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_for(f"process {pid} is gone", gone)
