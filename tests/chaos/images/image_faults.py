# SPDX-License-Identifier: Apache-2.0
"""How each kind of fault of builders, their disks, and records is done, and undone."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

from kazoo.exceptions import BadVersionError, NoNodeError

from tests.chaos.events import Violations
from tests.chaos.fault_runner import FaultRunner
from tests.chaos.images.builder_site import IMAGES, REMOVABLE, BuilderSite
from tests.chaos.images.cloud_faults import CloudFaults
from tests.chaos.network_faults import LinkFaults, ZooKeeperFaults
from tests.chaos.schedule import Fault
from tests.support.image_znodes import Build, Upload

#: How long "...-in-build" and "...-in-upload" wait for something to hit.
BUSY_SECONDS = 3.0


class ImageInjector(FaultRunner):
    """Does the faults of a schedule; `run` blocks until all have ended."""

    def __init__(self, site: BuilderSite, violations: Violations, seed: int) -> None:
        super().__init__(site, violations)
        self._site = site
        self._random = Random(f"image victims {seed}")
        self._places = [CloudFaults(site, seed), LinkFaults(site), ZooKeeperFaults(site, seed)]
        #: Ids of builds of which a hand took the record away: their images in clouds have none then.
        self.forgotten_builds: set[str] = set()
        #: The same of uploads: provider, build and number.
        self.forgotten_uploads: set[tuple[str, str, str]] = set()

    # -- builders

    def _builder(self, fault: Fault) -> Any:
        assert fault.launcher is not None
        return self._site.builders[fault.launcher]

    def _wait_for(self, state: str) -> str:
        """Waits until some build or upload is in this state."""
        deadline = time.monotonic() + BUSY_SECONDS
        while time.monotonic() < deadline:
            builds = self._builds()
            found = [build.path for build in builds if build.state == state]
            found += [upload.path for build in builds for upload in build.uploads if upload.state == state]
            if found:
                return f"{state}: {found[0]}"
            threading.Event().wait(0.02)
        return f"nothing was {state}"

    def _kill(self, fault: Fault) -> None:
        self._builder(fault).kill()
        self._pause(fault)
        self._builder(fault).start()

    def _kill_in_build(self, fault: Fault) -> str:
        what = self._wait_for("building")
        self._kill(fault)
        return what

    def _kill_in_upload(self, fault: Fault) -> str:
        what = self._wait_for("uploading")
        self._kill(fault)
        return what

    def _freeze(self, fault: Fault) -> None:
        self._builder(fault).send_signal(signal.SIGSTOP)
        self._pause(fault)
        self._builder(fault).send_signal(signal.SIGCONT)

    def _freeze_in_build(self, fault: Fault) -> str:
        what = self._wait_for("building")
        self._freeze(fault)
        return what

    def _freeze_in_upload(self, fault: Fault) -> str:
        what = self._wait_for("uploading")
        self._freeze(fault)
        return what

    def _terminate(self, fault: Fault) -> str:
        status = self._builder(fault).stop(seconds=30)
        # One that has just been started may have no handler for signals yet.
        if status not in (0, -signal.SIGTERM):
            self._violations.add(f"builder {fault.launcher} ended with exit status {status}")
        self._pause(fault)
        self._builder(fault).start()
        return f"exit status {status}"

    def _failing_builds(self, fault: Fault) -> None:
        self._site.steer(fail=fault.amount)
        self._pause(fault)
        self._site.steer()

    def _hanging_builds(self, fault: Fault) -> None:
        self._site.steer(hang=fault.amount)
        self._pause(fault)
        self._site.steer()

    # -- disks

    def _image_disk_full(self, fault: Fault) -> str:
        assert fault.launcher is not None
        disk = self._site.disks[fault.launcher]
        try:
            return disk.fill(self._builder(fault).pid)
        finally:
            self._pause(fault)
            disk.make_room(self._builder(fault).pid)

    def _image_files_deleted(self, fault: Fault) -> str:
        """Somebody removes the files of a build: all, or some."""
        assert fault.launcher is not None
        files: list[Path] | None = self._choice(sorted(self._site.disks[fault.launcher].builds().values()))
        if files is None:
            return "there were none"
        victims = [file for file in files if file.is_file()][: self._random.choice((1, 100))]
        for file in victims:
            file.unlink(missing_ok=True)
        return f"{[file.name for file in victims]}"

    # -- hands in ZooKeeper

    def _builds(self) -> list[Build]:
        return [build for image in self._site.znodes.images().values() for build in image.builds]

    def _any_build(self, *states: str) -> Build | None:
        found: Build | None = self._choice([b for b in self._builds() if not states or b.state in states])
        return found

    def _any_upload(self, *states: str) -> Upload | None:
        uploads = [upload for build in self._builds() for upload in build.uploads]
        found: Upload | None = self._choice([u for u in uploads if not states or u.state in states])
        return found

    def _build_corrupted(self, _fault: Fault) -> str:
        build = self._any_build()
        if build is None:
            return "there was none"
        self._site.znodes.corrupt(build.path)
        return f"{build.path}, {build.state}"

    def _build_record_deleted(self, _fault: Fault) -> str:
        build = self._any_build()
        if build is None:
            return "there was none"
        # An error may come after the effect.
        self.forgotten_builds.add(build.build_id)
        self._site.znodes.remove(build.path)
        return f"{build.path}, {build.state}"

    def _upload_corrupted(self, _fault: Fault) -> str:
        upload = self._any_upload()
        if upload is None:
            return "there was none"
        self._site.znodes.corrupt(upload.path)
        return f"{upload.path}, {upload.state}"

    def _upload_record_deleted(self, _fault: Fault) -> str:
        upload = self._any_upload()
        if upload is None:
            return "there was none"
        self.forgotten_uploads.add((upload.provider, upload.build_id, upload.upload_id))
        self._site.znodes.remove(upload.path)
        return f"{upload.path}, {upload.state}"

    # -- what operators do

    def _build_requested(self, _fault: Fault) -> str:
        image = self._random.choice(IMAGES)
        self._site.znodes.request_build(image)
        return image

    def _build_unwanted(self, _fault: Fault) -> str:
        return self._mark(self._any_build("ready", "failed"))

    def _upload_unwanted(self, _fault: Fault) -> str:
        return self._mark(self._any_upload("ready", "failed"))

    def _mark(self, what: Build | Upload | None) -> str:
        if what is None:
            return "there was none"
        try:
            self._site.znodes.change(what.path, state="deleting", state_time=time.time())
        except (NoNodeError, BadVersionError) as error:
            return f"{what.path}: {error!r}"
        return what.path

    def _image_removed(self, fault: Fault) -> None:
        self._site.reconfigure(removed=[REMOVABLE])
        self._pause(fault)
        self._site.reconfigure()

    def _choice(self, things: list[Any]) -> Any:
        return self._random.choice(things) if things else None
