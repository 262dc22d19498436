# SPDX-License-Identifier: Apache-2.0
"""One run: three released launchers under load become ours one after the other, go back, and become ours again."""

from __future__ import annotations

import re
import shlex
import statistics
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from kazoo.security import OPEN_ACL_UNSAFE

from tests.chaos.audit import Audit
from tests.chaos.deadline import Deadline
from tests.chaos.events import Violations
from tests.chaos.invariants import Aftermath
from tests.chaos.launcher_logs import tracebacks
from tests.chaos.load import Load
from tests.chaos.transaction_log import read_writes
from tests.chaos.world import CHROOT, own_label
from tests.migration.site import LAUNCHERS, Kind, Site
from tests.migration.watcher import Excess, MixedWatcher, faults_of_ours, kind_of, makers
from tests.support.launcher import ROOT
from tests.support.pool_znodes import NODES, REQUEST_LOCKS
from tests.support.released import ReleasedPrograms
from tests.support.wait import wait_for
from tests.support.zuul_client import ZuulClient

#: It tells how long ago, so two looks differ.
AGE = "Age"


class Specimens:
    """Takes nodes as Zuul's autohold does."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._client = ZuulClient(site.zookeeper.tls_hosts(CHROOT), site.zookeeper.certificates, session_seconds=30)
        self._holds: list[Any] = []
        #: Node id -> its record when it was put on hold.
        self._records: dict[str, dict[str, Any] | None] = {}

    def start(self) -> None:
        self._client.start()

    def stop(self) -> None:
        self._client.stop()

    def take(self) -> None:
        """One node of each launcher that runs now."""
        for number in range(LAUNCHERS):
            request = self._client.submit_and_wait([own_label(number)])
            assert request.state == "fulfilled", f"request {request.id} is {request.state}"
            nodeset = self._client.accept(request)
            self._client.use(nodeset)
            self._holds.append(self._client.hold(nodeset))
            (node,) = nodeset.getNodes()
            self._records[node.id] = self._site.znodes.node_now(node.id)

    def changed(self) -> list[str]:
        """Held nodes that somebody has written, or that only some may change; a sentence each."""
        found = []
        for node_id, before in self._records.items():
            now = self._site.znodes.node_now(node_id)
            if now != before:
                found.append(f"held node {node_id} was changed: {before} is {now}")
            elif self._site.znodes.kazoo.get_acls(f"{NODES}/{node_id}")[0] != OPEN_ACL_UNSAFE:
                found.append(f"node {node_id} has access rules")
        return found

    def listed_differently(self) -> list[str]:
        """Both command lines must say the same of the held nodes; what is wrong, a sentence each."""
        with ThreadPoolExecutor(len(Kind)) as pool:
            tables = dict(zip(Kind, pool.map(self._listed, Kind), strict=True))
        found = []
        if tables[Kind.OURS] != tables[Kind.RELEASED]:
            found.append(f"the command lines list different things: {tables}")
        if missing := set(self._records) - set(tables[Kind.OURS]):
            found.append(f"not listed: {sorted(missing)}")
        return found

    def release(self) -> None:
        """Deletes the hold requests, so that Zuul marks the nodes used. Blocks until they are gone."""
        for hold in self._holds:
            self._client.delete_hold(hold)
        wait_for("held nodes are gone", lambda: not set(self._records) & set(self._site.znodes.nodes()), 90)

    def _listed(self, kind: Kind) -> dict[str, dict[str, str]]:
        arguments = ["-c", str(self._site.config_of(0)), "list", "--detail"]
        answer = self._site.run_tool(arguments, kind)
        assert answer.returncode == 0, answer.stderr
        rows = {row["ID"]: row for row in rows_of(answer.stdout)}
        return {name: row for name, row in rows.items() if name in self._records and row.pop(AGE)}


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of an ASCII table, by the headers of its columns.

    :raises ValueError: a row has other columns than the header.
    """
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    header, *rows = [[cell.strip() for cell in cells] for cells in lines]
    return [dict(zip(header, cells, strict=True)) for cells in rows]


PAGE = ROOT / "doc" / "source" / "how-to" / "migrate.rst"
#: Where the page has the command lines.
TOOLS: Mapping[str, Kind] = {"/opt/nodepool/bin/nodepool": Kind.OURS, "/opt/nodepool-11/bin/nodepool": Kind.RELEASED}
#: What a test does not run: it is about the machine, or the test does it in another way.
LEFT_TO_THE_READER = ("systemctl", "journalctl", "apt-get install")
FILE = "/etc/nodepool/nodepool.yaml"


def commands(text: str) -> Iterator[str]:
    """What follows a ``$`` in the page's console blocks."""
    for block in re.findall(r"^( *)\.\. code-block:: console\n((?:\n|\1 +.*\n)+)", text, re.MULTILINE):
        for line in block[1].splitlines():
            if line.strip().startswith("$ "):
                yield line.strip().removeprefix("$ ")


def runnable(text: str) -> list[str]:
    """Those that a test runs. :raises AssertionError: one is neither that nor known to be left out."""
    found = [command for command in commands(text) if not command.startswith(LEFT_TO_THE_READER)]
    unknown = [command for command in found if command.split()[0] not in TOOLS]
    assert not unknown, f"no test runs these commands of the page: {unknown}"
    return found


class Handbook:
    """Runs what the page says to check."""

    def __init__(self, site: Site, page: Path = PAGE) -> None:
        self._site = site
        self._commands = runnable(page.read_text(encoding="utf-8"))

    def check(self) -> list[str]:
        """Runs all commands at once, as the load goes on meanwhile; returns what is wrong, a sentence each."""
        with ThreadPoolExecutor(len(self._commands)) as pool:
            return [text for text in pool.map(self._problem, self._commands) if text]

    def _problem(self, command: str) -> str:
        answer = self._site.run_tool(self._arguments(shlex.split(command)[1:]), TOOLS[command.split()[0]])
        return f"{command}: exit status {answer.returncode}: {answer.stderr[-500:]}" if answer.returncode else ""

    def _arguments(self, words: Sequence[str]) -> list[str]:
        return [word.replace(FILE, str(self._site.config_of(0))) for word in words]


#: Jobs at once, and how many of them must end between two steps.
JOBS, JOBS_PER_STEP = 7, 4
STEP_SECONDS = 300.0
LOOK_SECONDS = 0.25
#: The released launcher looks for what is left over once a minute.
CLEAN_SECONDS = 90.0


def run(directory: Path, seed: int, released: ReleasedPrograms) -> dict[str, Any]:
    """Blocks until it is over and returns the report; ``violations`` is empty when all is well.

    :param directory: for logs and data; new.
    :param seed: of the order in which launchers are replaced, and of the load.
    """
    site = Site(directory, seed, released)
    violations = Violations(site)
    try:
        site.start()
        load = Load(site, seed, JOBS, violations.add)
        watcher = MixedWatcher(site, load, violations)
        specimens = Specimens(site)
        try:
            load.connect()
            specimens.start()
            site.begin()
            load.start()
            watcher.start()
            try:
                for number, kind, overlap in _steps(seed):
                    _step(site, load, specimens, violations, number, kind, overlap)
                load.finish()
                specimens.release()
                _end(site, load, violations)
            except AssertionError as error:
                violations.add(f"the run could not go on: {error}")
        finally:
            watcher.stop()
            specimens.stop()
            load.close()
        peaks = site.cloud.state()["peak_by_provider"]
    finally:
        site.stop()
    figures = _judge(site, load, watcher.excesses, violations)
    return {"seed": seed, "violations": violations.found, "figures": {**figures, "peaks": peaks}, "events": site.events}


def _steps(seed: int) -> Iterator[tuple[int | None, Kind, bool]]:
    """Number of a launcher, what it becomes, whether that is started first. No number: all are of the kind now."""
    random = Random(f"migration {seed}")
    yield None, Kind.RELEASED, False
    for kind in (Kind.OURS, Kind.RELEASED, Kind.OURS):
        order = list(range(LAUNCHERS))
        random.shuffle(order)
        for number in order:
            yield number, kind, random.random() < 0.3
        yield None, kind, False


def _step(
    site: Site, load: Load, specimens: Specimens, violations: Violations, number: int | None, kind: Kind, overlap: bool
) -> None:
    if number is not None:
        site.replace(number, kind, overlap)
    elif len(site.started) <= 2 * LAUNCHERS:
        # All are released ones, for the first time; or all are ours.
        specimens.take()
    done = sum(load.results.values())
    wait_for(f"{JOBS_PER_STEP} jobs", lambda: sum(load.results.values()) >= done + JOBS_PER_STEP, STEP_SECONDS)
    found = specimens.changed()
    if number is None and LAUNCHERS < len(site.started) <= 3 * LAUNCHERS:
        # All are ours now, or released ones again; both have made nodes that are on hold then.
        found += [*specimens.listed_differently(), *Handbook(site).check()]
    for text in found:
        violations.add(text)


def _end(site: Site, load: Load, violations: Violations) -> None:
    """All are ours now, and nobody wants anything: all serve, and nothing is left."""
    aftermath = Aftermath(site, load, violations)
    load.forget()
    aftermath.check_serving()
    deadline = Deadline(CLEAN_SECONDS)
    while (left := _left_over(site, aftermath)) and not deadline.passed():
        threading.Event().wait(LOOK_SECONDS)
    for what, which in left.items():
        violations.add(f"left after {deadline.elapsed:.0f} s: {what}: {str(which)[:400]}")


def _left_over(site: Site, aftermath: Aftermath) -> dict[str, Any]:
    left = aftermath.left_over()
    # The released launcher leaves the empty directories for eight hours.
    locked = [name for name in left.pop("lock directories", []) if site.znodes.children(f"{REQUEST_LOCKS}/{name}")]
    return {**left, "locks": locked} if locked else left


def _judge(site: Site, load: Load, excesses: list[Excess], violations: Violations) -> dict[str, Any]:
    writes = read_writes(site.transaction_logs())
    made_by = makers(writes, CHROOT)
    for text in faults_of_ours(excesses, made_by):
        violations.add(text)
    audit = Audit(CHROOT, judged=lambda pool: kind_of(pool) is Kind.OURS).follow(writes)
    for text in audit.violations:
        violations.add(text)
    own = {own_label(number): number for number in range(LAUNCHERS)}
    for request_id, (labels, when) in load.failed.items():
        if not any(label in own and site.was_away(own[label], when) for label in labels):
            violations.add(f"request {request_id} for {labels} failed at {when:.1f} s although all were there")
    for kind, launcher in site.started:
        if kind is Kind.OURS:
            for last in sorted(set(tracebacks(launcher.log_text().splitlines()))):
                violations.add(f"traceback in {launcher.log_path.name}: {last}")
    waits = sorted(waited for waited, _ in load.waits)
    return {
        "jobs": dict(load.results),
        "wait p50": round(statistics.median(waits), 2) if waits else None,
        "wait max": round(waits[-1], 2) if waits else None,
        "nodes": dict(Counter(made_by.values())),
        "excesses of the released launcher": dict(Counter(excess.what for excess in excesses)),
        "failed while their launcher was away": len(load.failed),
        "writes of ours": dict(audit.counts),
        "seconds": round(site.now()),
    }
