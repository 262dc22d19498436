# SPDX-License-Identifier: Apache-2.0
"""One run: a site, a schedule of faults, and what came of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kazoo.exceptions import KazooException

from tests.chaos.deadline import Deadline
from tests.chaos.events import Violations
from tests.chaos.images.builder_site import FORMATS, IMAGES, LATER_SECONDS, REMOVABLE, BuilderSite
from tests.chaos.images.image_audit import ImageAudit
from tests.chaos.images.image_faults import ImageInjector
from tests.chaos.images.remains import Forgotten, Remains, disks_of
from tests.chaos.launcher_logs import tracebacks
from tests.chaos.schedule import Fault
from tests.chaos.transaction_log import read_writes
from tests.chaos.usage import Usage, grown
from tests.chaos.world import CHROOT
from tests.support.build_journal import built_files, processes_of, read_journal
from tests.support.launcher import ROOT

#: After the end of all faults everything must be right again, and before them for the first time.
RECOVERY_SECONDS, START_SECONDS = 120.0, 60.0
#: A look at several places is not one moment: so long all must be well, twice in a row.
LOOK_SECONDS = 0.5
#: A command of the tool.
COMMAND_SECONDS = 60.0
#: What an image in a cloud has that was there before.
BASE_IMAGE = "cloud-image"


@dataclass(frozen=True)
class ImageSettings:
    """What a run is made of; the same settings make the same faults at the same times."""

    seed: int
    faults: Sequence[Fault]
    builders: int = 2
    patience: float = 0.0


class ImageRun:
    """:param directory: for logs and data; new."""

    def __init__(self, settings: ImageSettings, directory: Path) -> None:
        self._settings = settings
        self._site = BuilderSite(directory, settings.seed, settings.builders)
        self._violations = Violations(self._site)
        self._injector: ImageInjector
        self._hands: set[int] = set()

    def run(self) -> dict[str, Any]:
        """Blocks until it is over and returns the report; ``violations`` is empty when all is well."""
        site = self._site
        figures: dict[str, Any] = {}
        try:
            site.start()
            site.begin()
            self._injector = ImageInjector(site, self._violations, self._settings.seed)
            figures["seconds until all was ready"] = self._wait_right(START_SECONDS)
            before = self._usage()
            site.begin()
            site.note("the faults begin")
            self._hands.add(self._session())
            watch = threading.Thread(target=self._note_sessions, name="sessions")
            self._over = threading.Event()
            watch.start()
            try:
                self._injector.run(list(self._settings.faults))
            finally:
                self._over.set()
                watch.join()
            figures |= self._finish(before)
        finally:
            site.stop()
        figures |= self._judge_logs()
        return {
            "seed": self._settings.seed,
            "violations": self._violations.found,
            "figures": figures,
            "kinds": dict(Counter(fault.kind for fault in self._settings.faults)),
            "faults": [fault.as_json() for fault in self._settings.faults],
            "events": site.events,
        }

    # -- the end of the faults

    def _finish(self, before: Sequence[Usage]) -> dict[str, Any]:
        site = self._site
        site.note("all faults are over")
        site.reconfigure(rebuild_seconds=LATER_SECONDS)
        seconds = self._wait_right(RECOVERY_SECONDS)
        if seconds is None and self._settings.patience:
            self._wait_right(self._settings.patience)
        self._check_aliens()
        after = self._usage()
        for text in grown(before, after):
            self._violations.add(text.replace("launcher", "builder"))
        for number, builder in enumerate(site.builders):
            status = builder.stop(seconds=30)
            if status != 0:
                self._violations.add(f"builder {number} ended with exit status {status}")
        if left := processes_of(site.directory):
            self._violations.add(f"processes outlive the builders: {left}")
        return {"seconds until all was right": seconds, "builders before": before, "builders after": after}

    def _usage(self) -> list[Usage]:
        builders = self._site.builders
        for number, builder in enumerate(builders):
            if not builder.running:
                self._violations.add(f"builder {number} does not run: {builder.log_text()[-500:]}")
        return [builder.usage() for builder in builders if builder.running]

    def _wait_right(self, seconds: float) -> float | None:
        """Blocks until everything is as it should be; returns the seconds, None: it is not."""
        deadline = Deadline(seconds)
        wrong: dict[str, list[str]] = {"nothing was seen": []}
        noted: set[str] = set()
        good = 0
        while good < 2:
            if deadline.passed():
                for kind, which in wrong.items():
                    self._violations.add(f"after {deadline.elapsed:.0f} s: {kind}: {', '.join(which)[:600]}")
                return None
            threading.Event().wait(LOOK_SECONDS)
            try:
                wrong = self._look().wrong(IMAGES, FORMATS)
            except (KazooException, OSError) as error:
                wrong = {"error": [repr(error)]}
            good = 0 if wrong else good + 1
            if set(wrong) != noted:
                self._site.note(f"wrong: {wrong}"[:600])
                noted = set(wrong)
        return round(deadline.elapsed, 1)

    def _look(self) -> Remains:
        site = self._site
        clouds = {
            name: [image for image in cloud.images() if image["name"] != BASE_IMAGE]
            for name, cloud in site.clouds.items()
        }
        return Remains(
            site.znodes.images(),
            clouds,
            disks_of(site.disks),
            built_files(read_journal(site.journal)),
            processes_of(site.directory),
            Forgotten(self._injector.forgotten_builds, self._injector.forgotten_uploads),
        )

    def _check_aliens(self) -> None:
        """D-3: what has no record any more is listed, and nothing else."""
        remains = self._look()
        expected = {image for name in FORMATS for image in remains.aliens(name)}
        builder = self._site.builders[0]
        command = [sys.executable, "-m", "nodepool.cmd.cli", "-c", str(builder.config_path)]
        answer = subprocess.run(
            [*command, "alien-image-list", "--format", "json"],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            cwd=ROOT,
            env=builder.environment,
            check=False,
        )
        if answer.returncode != 0:
            self._violations.add(f"alien-image-list ended with {answer.returncode}: {answer.stderr[-500:]}")
            return
        listed = {str(value) for row in json.loads(answer.stdout) for value in row.values()}
        for image in expected - listed:
            self._violations.add(f"alien-image-list does not have image {image}")
        known = {str((u.record or {}).get("external_id")) for i in remains.images.values() for u in i.uploads()}
        for image in known & listed:
            self._violations.add(f"alien-image-list has image {image}, which has a record")

    # -- afterwards

    def _session(self) -> int:
        client_id = self._site.znodes.kazoo.client_id
        return 0 if client_id is None else int(client_id[0])

    def _note_sessions(self) -> None:
        """Our own session may end when ZooKeeper is killed."""
        while not self._over.wait(LOOK_SECONDS):
            self._hands.add(self._session())

    def _judge_logs(self) -> dict[str, Any]:
        site = self._site
        for number, builder in enumerate(site.builders):
            for last in sorted(set(tracebacks(builder.log_text().splitlines()))):
                self._violations.add(f"traceback in the log of builder {number}: {last}")
        directories = sorted(site.zookeeper.directory.glob("**/version-2"))
        audit = ImageAudit(CHROOT, self._hands, [REMOVABLE]).follow(read_writes(directories))
        for text in audit.violations:
            self._violations.add(text)
        journal = read_journal(site.journal)
        begun = sum("begins" in line for line in journal)
        return {"builds begun": begun, "builds made": len(journal) - begun, "writes": dict(audit.counts)}
