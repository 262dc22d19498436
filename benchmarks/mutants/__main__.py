# SPDX-License-Identifier: Apache-2.0
"""How strong the tests are: a seeded sample of mutants, each run by the tests that cover its line. See README.rst."""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self
from xml.etree import ElementTree

from benchmarks.mutants.operators import Mutant, compiles, mutants, mutated

Row = dict[str, Any]
#: Patterns of files, and the number of mutants.
Strata = dict[str, tuple[tuple[str, ...], int]]

STRATA: Strata = {
    "plan": (("plan/**/*.py",), 64),
    "zk/transactions": (("zk/transactions.py",), 36),
    "zk/cache": (("zk/*cache*.py",), 40),
    "launcher": (("launcher/**/*.py",), 64),
    "driver/handler": (("driver/handler.py",), 36),
    "driver/statemachine": (("driver/statemachine/**/*.py",), 60),
    "driver framework": (("driver/framework/**/*.py",), 50),
    "driver/aws": (("driver/aws/**/*.py",), 50),
    "config": (("config/**/*.py", "driver/config.py"), 44),
    "builder": (("builder/**/*.py",), 44),
}
SEED = 38
#: The longest list of tests for a mutant, and the seconds they took all together when they were measured.
MOST_TESTS, MOST_SECONDS = 200, 120.0
#: The tests of the first run of a mutant, the fastest. Most mutants need no second.
FIRST_TESTS = 15
#: The fewest tests: a mutant with less gets others that run its file, as a result that is kept hides callers.
FEWEST_TESTS = 10
#: "test|run" is the context of a test, "test (call)" of a daemon that it started.
PHASE = re.compile(r"( \((setup|call|teardown)\)|\|(setup|run|teardown))$")
KILLED = ("killed", "timeout")


def draw(
    tree: Path, package: str, strata: dict[str, tuple[tuple[str, ...], int]], seed: int
) -> list[tuple[str, Mutant]]:
    """A sample of each stratum: operators by turns, at most one mutant on a line, and three in a function."""
    chosen = []
    for stratum, (patterns, size) in strata.items():
        order = random.Random(f"{seed} {stratum}")
        kinds: dict[str, list[Mutant]] = defaultdict(list)
        files = sorted({path for pattern in patterns for path in (tree / package).glob(pattern)})
        for path in files:
            for mutant in mutants(path, str(path.relative_to(tree))):
                kinds[mutant.operator].append(mutant)
        for kind in kinds.values():
            order.shuffle(kind)
        used: Counter[tuple[str, object]] = Counter()
        taken = 0
        for mutant in (each for turn in zip_longest(*(kinds[name] for name in sorted(kinds))) for each in turn if each):
            line, function = (mutant.file, mutant.line), (mutant.file, mutant.function)
            free = not used[line] and used[function] < 3 * max(1, size // 20 // len(files))
            if taken < size and free and compiles(mutated((tree / mutant.file).read_bytes(), mutant)):
                used.update([line, function])
                taken += 1
                chosen.append((stratum, mutant))
    return chosen


def find_again(tree: Path, package: str, rows: Iterable[Row]) -> Iterator[tuple[Row, Mutant | None]]:
    """The mutants of an earlier sample, in files where their functions stand now; None: the code is not there."""

    @cache
    def of_file(name: str) -> dict[object, Mutant]:
        return {each.within: each for each in mutants(tree / name, name)} if (tree / name).exists() else {}

    @cache
    def elsewhere() -> dict[object, Mutant]:
        names = sorted(str(path.relative_to(tree)) for path in (tree / package).rglob("*.py"))
        found: dict[object, Mutant] = {}
        for name in names:
            for within, mutant in of_file(name).items():
                found.setdefault(within, mutant)
        return found

    for row in rows:
        within = row["function"], row["operator"], row["before"], row["after"], row["occurrence"]
        yield row, of_file(row["file"]).get(within) or elsewhere().get(within)


@dataclass
class Suite:
    """What was measured of a suite: tests of each line, and their durations.

    :ivar measured: the tree in which coverage was measured; its product is the same.
    """

    tree: Path
    measured: Path
    coverage: list[Path]
    most_tests: int = MOST_TESTS
    most_seconds: float = MOST_SECONDS
    durations: dict[tuple[str, str], float] = field(default_factory=dict)
    failed: set[tuple[str, str]] = field(default_factory=set)
    sources: dict[str, str] = field(default_factory=dict)

    def read(self, junit: Iterable[Path]) -> Self:
        for path in junit:
            for case in ElementTree.parse(path).iter("testcase"):
                name = case.get("classname", ""), case.get("name", "")
                self.durations[name] = float(case.get("time", "1"))
                if case.find("failure") is not None or case.find("error") is not None:
                    self.failed.add(name)
        return self

    def lines(self, name: str) -> dict[int, set[str]]:
        from coverage import CoverageData

        found: dict[int, set[str]] = defaultdict(set)
        for path in self.coverage:
            data = CoverageData(str(path))
            data.read()
            for line, contexts in data.contexts_by_lineno(str(self.measured / name)).items():
                found[line] |= {test for context in contexts if self.exists(test := PHASE.sub("", context))}
        return found

    def exists(self, test: str) -> bool:
        """Does the tree have it? It may have been removed after coverage was measured."""
        path, *names = test.partition("[")[0].split("::")
        if path not in self.sources:
            file = self.tree / path
            self.sources[path] = file.read_text(encoding="utf-8") if path and file.is_file() else ""
        text = self.sources[path]
        # A class may inherit its tests. A daemon without a test has no name.
        return f"class {names[0]}" in text if len(names) > 1 else bool(names) and f"def {names[0]}(" in text

    def seconds(self, test: str) -> float:
        return self.durations.get(junit_name(test), 1.0) if "::" in test else 4.0

    def choose(self, mutant: Mutant, lines: dict[int, set[str]]) -> list[str]:
        """The fastest first; none: no test runs the line in its own process."""
        if not self.coverage:
            inside = Path(mutant.file).relative_to(Path(mutant.file).parts[0]).parent
            places = [self.tree / "tests" / kind / inside for kind in ("unit", "integration")]
            found = [path for place in places for path in sorted(place.glob(f"test_{Path(mutant.file).stem}*.py"))]
            return [str(path.relative_to(self.tree)) for path in found]
        direct = lines[mutant.line] or lines[mutant.statement]
        others = set().union(*lines.values()) - direct if len(direct) < FEWEST_TESTS else set()
        chosen: list[str] = []
        total = 0.0
        for tests, most in ((direct, self.most_tests), (others, len(direct) + 2 * FEWEST_TESTS)):
            for test in sorted(tests, key=lambda test: (not test.startswith("tests/unit"), self.seconds(test), test)):
                total += self.seconds(test)
                if (
                    junit_name(test) not in self.failed
                    and len(chosen) < most
                    and (total < self.most_seconds or not chosen)
                ):
                    chosen.append(test)
        return chosen


def junit_name(test: str) -> tuple[str, str]:
    """``tests/unit/test_a.py::TestB::test_c[d]`` as JUnit files have it."""
    place, bracket, parameters = test.partition("[")
    path, *names = place.split("::")
    return ".".join([path.removesuffix(".py").replace("/", "."), *names[:-1]]), names[-1] + bracket + parameters


class Server:
    """A copy of the tree, and a process that runs tests in it."""

    def __init__(self, tree: Path, python: Path, place: Path) -> None:
        self.copy = place / "tree"
        self.orders = 0
        place.mkdir(parents=True)
        subprocess.run(["git", "-c", "advice.detachedHead=false", "clone", "-q", str(tree), str(self.copy)], check=True)
        environment = {**os.environ, "PYTHONPATH": str(self.copy), "PYTHONHASHSEED": "0", "CI": "true"}
        environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
        # Compiled files stay beside the sources; those of a mutant have another time.
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"):
            environment.pop(name, None)
        command = [str(python), str(Path(__file__).with_name("server.py")), str(place)]
        self.process = subprocess.Popen(
            command, cwd=self.copy, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def order(self, tests: list[str], seconds: float) -> Row:
        """Of tests that take so long."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"tests": tests, "limit": 60 + 5 * seconds, "cpu": 12 + int(2 * seconds)}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer: Row = json.loads(self.process.stdout.readline())
        return answer

    def run(self, mutant: Mutant, tests: list[str], suite: Suite) -> Row:
        """State, and by which test. A slow test that fails must fail again: it may have failed without the mutant."""
        path = self.copy / mutant.file
        data, times = path.read_bytes(), path.stat()
        self.orders += 1
        path.write_bytes(mutated(data, mutant))
        os.utime(path, (times.st_atime, int(times.st_mtime) + 2 * self.orders))
        try:
            remaining = tests
            size = FIRST_TESTS
            while chunk := remaining[:size]:
                answer = self.order(chunk, sum(map(suite.seconds, chunk)))
                if answer["state"] == "passed":
                    remaining, size = remaining[size:], len(tests)
                elif (
                    size == FIRST_TESTS
                    or answer["by"] not in chunk
                    or self.order([answer["by"]], 15)["state"] != "passed"
                ):
                    return {"state": "timeout" if answer["state"] == "timeout" else "killed", "by": answer["by"]}
                else:
                    remaining = [test for test in remaining if test != answer["by"]]
            return {"state": "survived" if suite.coverage else "undecided", "by": ""}
        finally:
            path.write_bytes(data)
            os.utime(path, (times.st_atime, times.st_mtime))

    def stop(self) -> None:
        self.process.communicate()


class Results:
    """One line of JSON a mutant, appended when it is known; of two lines about one mutant the later one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        records: list[Row] = [json.loads(line) for line in lines]
        self.head: Row = next((record["head"] for record in records if "head" in record), {})
        self.left_out: set[str] = {record["left_out"] for record in records if "left_out" in record}
        self.rows: dict[str, Row] = {record["id"]: record for record in records if "id" in record}
        self.rows = {key: row for key, row in self.rows.items() if row["by"] not in self.left_out}

    def add(self, record: Row) -> None:
        with self.lock, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            if "id" in record:
                self.rows[record["id"]] = record

    def tidy(self) -> None:
        """Each mutant once, in the order of the sample's parts and files."""
        with self.lock:
            rows = sorted(
                self.rows.values(), key=lambda row: ([*STRATA, row["stratum"]].index(row["stratum"]), row["id"])
            )
            records = [{"head": self.head}, *({"left_out": test} for test in sorted(self.left_out)), *rows]
            self.path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")

    def summary(self) -> str:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for row in self.rows.values():
            for stratum in (row["stratum"], "all"):
                counts[stratum].update([row["state"], "mutants"])
        states = ["mutants", *KILLED, "survived", "uncovered", "undecided", "absent"]
        lines = [f"{'':<20}" + "".join(f"{state:>10}" for state in states)]
        for stratum in sorted(counts, key=lambda stratum: stratum == "all"):
            lines.append(f"{stratum:<20}" + "".join(f"{counts[stratum][state]:>10}" for state in states))
        return "\n".join(lines)


def run(options: argparse.Namespace) -> int:
    tree: Path = options.tree.resolve()
    results = Results(options.out)
    if options.sample:
        sample = list(find_again(tree, options.package, Results(options.sample).rows.values()))
    else:
        whole: Strata = {options.package: (("**/*.py",), options.count)}
        drawn = draw(tree, options.package, whole if options.count else STRATA, options.seed)
        sample = [(describe(stratum, mutant), mutant) for stratum, mutant in drawn]
    if not results.head:
        commit = subprocess.check_output(["git", "-C", str(tree), "rev-parse", "HEAD"], text=True).strip()
        bounds = {"tests": options.most_tests, "seconds": options.most_seconds}
        results.head = {"commit": commit, "seed": options.seed, "sample": len(sample), "bounds": bounds}
        results.add({"head": results.head})
    coverage = [path.resolve() for path in options.coverage]
    measured = options.measured.resolve() if options.measured else tree
    suite = Suite(tree, measured, coverage, options.most_tests, options.most_seconds).read(options.junit)
    wanted = plan(sample, suite, results)
    if options.list:
        print(f"{len(wanted)} mutants, {sum(len(tests) for _, _, tests in wanted)} tests", flush=True)
        return 0
    place = Path(tempfile.mkdtemp(prefix="mutants-"))
    servers = [Server(tree, options.python.absolute(), place / str(number)) for number in range(options.jobs)]
    try:
        while wanted:
            run_all(servers, wanted, suite, results)
            for test in sorted(fail_without_mutant(servers[0], results)):
                results.left_out.add(test)
                results.add({"left_out": test})
            results.rows = {key: row for key, row in results.rows.items() if row["by"] not in results.left_out}
            wanted = plan(sample, suite, results)
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(place, ignore_errors=True)
    results.tidy()
    print(results.summary())
    return 0


def describe(stratum: str, mutant: Mutant) -> Row:
    names = ("file", "line", "function", "operator", "before", "after", "occurrence")
    return {"id": mutant.key, "stratum": stratum, **{name: getattr(mutant, name) for name in names}}


def plan(
    sample: list[tuple[Row, Mutant | None]], suite: Suite, results: Results
) -> list[tuple[Row, Mutant, list[str]]]:
    """The mutants that live and have tests that they were not run by. What no test can decide gets its result here."""
    wanted = []
    lines: dict[str, dict[int, set[str]]] = {}
    lives, lacks_tests = ("survived", "uncovered") if suite.coverage else ("undecided", "undecided")
    for row, mutant in sample:
        known = results.rows.get(row["id"], {"state": "", "tests": 0})
        if known["state"] in (*KILLED, "absent"):
            continue
        if mutant is None:
            results.add({**row, "state": "absent", "by": "", "tests": 0})
            continue
        if mutant.file not in lines:
            lines[mutant.file] = suite.lines(mutant.file)
        tests = [test for test in suite.choose(mutant, lines[mutant.file]) if test not in results.left_out]
        if tests and (known["state"] != lives or len(tests) > known["tests"]):
            wanted.append(({**row, "file": mutant.file, "line": mutant.line}, mutant, tests))
        elif not tests and known["state"] != lacks_tests:
            results.add({**row, "state": lacks_tests, "by": "", "tests": 0})
    return wanted


def run_all(servers: list[Server], wanted: list[tuple[Row, Mutant, list[str]]], suite: Suite, results: Results) -> None:
    waiting: queue.SimpleQueue[tuple[Row, Mutant, list[str]]] = queue.SimpleQueue()
    # Any part of the results is a sample as well.
    for each in random.Random(SEED).sample(wanted, len(wanted)):
        waiting.put(each)

    def work(server: Server) -> None:
        while not waiting.empty():
            try:
                row, mutant, tests = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            outcome = server.run(mutant, tests, suite)
            seconds = round(time.monotonic() - began, 1)
            results.add({**row, **outcome, "tests": len(tests), "seconds": seconds})
            print(f"{len(results.rows)} {outcome['state']} {seconds} s {row['id']}", flush=True)

    threads = [threading.Thread(target=work, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def fail_without_mutant(server: Server, results: Results) -> set[str]:
    """The tests that killed mutants and fail in the unchanged tree as well."""
    killers = sorted(
        {row["by"] for row in results.rows.values() if "::" in row["by"] and " " not in row["by"].split("[")[0]}
    )
    failing: set[str] = set()
    for first in range(0, len(killers), 50):
        chunk = killers[first : first + 50]
        while chunk and (answer := server.order(chunk, 240))["state"] == "failed" and answer["by"] in chunk:
            failing.add(answer["by"])
            chunk = [test for test in chunk if test != answer["by"]]
    return failing


def compare(options: argparse.Namespace) -> int:
    """Fails when the new suite kills more than 1% fewer of the mutants that both trees have."""
    old, new = Results(options.old).rows, Results(options.new).rows
    both = [key for key in old if key in new and new[key]["state"] != "absent" != old[key]["state"]]
    before, after = ([key for key in both if rows[key]["state"] in KILLED] for rows in (old, new))
    for key in sorted(set(before) - set(after)):
        print(f"{new[key]['state']}, killed before by {old[key]['by']}:\n    {key} (line {new[key]['line']})")
    for key in sorted(set(old) - set(both)):
        print(f"not in both: {key}")
    print(f"{len(both)} mutants in both; killed before {len(before)}, now {len(after)}")
    return 0 if len(after) >= 0.99 * len(before) and both else 1


def show(options: argparse.Namespace) -> int:
    print(Results(options.results).summary())
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.mutants", description=__doc__)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="run a sample against a suite; what OUT has already is not run again")
    runs.set_defaults(call=run)
    runs.add_argument("--tree", type=Path, default=Path.cwd(), help="a git tree, everything committed")
    runs.add_argument("--package", default="nodepool", help="the directory of the mutated package in the tree")
    runs.add_argument("--python", type=Path, default=Path(sys.executable), help="a Python with what the tests need")
    runs.add_argument(
        "--coverage",
        type=Path,
        nargs="+",
        default=[],
        help="data of coverage, with contexts; without: only tests of the name of the file",
    )
    runs.add_argument(
        "--measured", type=Path, help="where coverage was measured, if not in TREE: only tests are different"
    )
    runs.add_argument("--junit", type=Path, nargs="+", default=[], help="JUnit files of the same run")
    runs.add_argument("--most-tests", type=int, default=MOST_TESTS, help="for a mutant")
    runs.add_argument("--most-seconds", type=float, default=MOST_SECONDS, help="all tests of a mutant, as measured")
    runs.add_argument("--sample", type=Path, help="the mutants of these results instead of a new sample")
    runs.add_argument("--seed", type=int, default=SEED)
    runs.add_argument("--count", type=int, help="so many mutants of the whole package, without strata")
    runs.add_argument("--jobs", type=int, default=2, help="mutants at once")
    runs.add_argument("--list", action="store_true", help="only count what would run")
    runs.add_argument("--out", type=Path, required=True, help="the results")
    compares = commands.add_parser("compare", help="what the new suite does not kill and the old one did")
    compares.set_defaults(call=compare)
    compares.add_argument("old", type=Path)
    compares.add_argument("new", type=Path)
    shows = commands.add_parser("show", help="counts of each stratum")
    shows.set_defaults(call=show)
    shows.add_argument("results", type=Path)
    options = parser.parse_args(arguments)
    status: int = options.call(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
