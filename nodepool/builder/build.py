# SPDX-License-Identifier: Apache-2.0
"""Builds of images (rules B).

First the thread that picks what is due and builds it (`BuildWorker`) with what it remembers of failed builds, then one
build from its lock to its record (`BuildAttempt`), then the command line and the environment of diskimage-builder.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import shlex
import shutil
import sys
import threading
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import nodepool
from nodepool import log_names
from nodepool.builder import image_files, imports
from nodepool.builder.dib import DibRun, RunResult, WorkDir
from nodepool.builder.image_files import BuildLog, ImageFiles
from nodepool.builder.progress import BuildKey, BuildProgress, Shared
from nodepool.clock import monotonic, wall_time
from nodepool.config.objects import Config, DiskImage
from nodepool.config.sections import wanted_images
from nodepool.driver.config import ImageConversion
from nodepool.driver.framework.fact import Repeats
from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException
from nodepool.guard import Guard
from nodepool.metrics import reports as build_metrics
from nodepool.model import states
from nodepool.model.image import ImageBuild, ImageBuildRequest, ImageSource, ImagesView, ImageView
from nodepool.plan.images import (
    BuildHistory,
    Due,
    NotDue,
    OwnBuilds,
    WantedImage,
    WantedImages,
    build_due,
    observe_builds,
)
from nodepool.plan.retries import Backoff
from nodepool.runtime.worker import Worker
from nodepool.tracing import spans
from nodepool.zk.transactions import ZkLock

#: Longest time between two looks; changes come as events.
IDLE_SECONDS: Final = 60.0
#: The disk is looked at again after so long when there was no room for a build.
SPACE_SECONDS: Final = 60.0
#: The vendor of an image is asked no longer than this for a checksum, and again after these pauses when that failed.
LOOK_SECONDS: Final = 30.0
LOOK_BACKOFF: Final = Backoff(60.0, 3600.0)
#: A reason that lasts is logged again after so long.
REMIND_SECONDS: Final = 3600.0


# What the build workers of a builder share: which images they build, and which of their builds have failed.

#: Own failed builds of an image that are remembered by their ids. Their records are gone long before.
_REMEMBERED: Final = 100


class BuildQueue:
    """Any thread, nothing blocks. ``_lock`` guards the tables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Images that a worker builds or is about to build: the others do not build them.
        self._taken: set[str] = set()
        #: Failed builds of each image, as this builder has seen them: its own, and those of others (rule B-13).
        self._histories: dict[str, BuildHistory] = {}
        #: Own failed builds: their records may be removed before, or after, they are seen as failed.
        self._own: dict[str, deque[str]] = {}
        #: Looks at the checksums of an image's vendor that have failed in a row.
        self._failed_looks: dict[str, int] = {}
        #: Images without room for a build.
        self.without_room = Repeats(REMIND_SECONDS)

    def take(self, image: str) -> bool:
        """True: it is this caller's until `give_back`."""
        with self._lock:
            if image in self._taken:
                return False
            self._taken.add(image)
            return True

    def give_back(self, image: str) -> None:
        with self._lock:
            self._taken.discard(image)

    def look(self, view: ImageView, settings: Hashable) -> BuildHistory:
        """What is known of an image after a look at it.

        :param settings: of the image in the configuration now.
        """
        with self._lock:
            before = self._histories.get(view.name, BuildHistory())
            before = replace(before, counted=before.counted | frozenset(self._own.get(view.name, ())))
            after = self._histories[view.name] = observe_builds(before, view, settings, wall_time())
            return after

    def looked(self, image: WantedImage, *, failed: bool) -> float:
        """The checksum of its vendor was looked at. Returns seconds until the next look."""
        with self._lock:
            failures = self._failed_looks[image.name] = self._failed_looks.get(image.name, 0) + 1 if failed else 0
            seconds = LOOK_BACKOFF.pause(failures) if failed else image.rebuild_age_seconds
            before = self._histories.get(image.name, BuildHistory())
            self._histories[image.name] = replace(before, look_at=wall_time() + seconds)
            return seconds

    def failed(self, image: str, build_id: str, created_zxid: int, settings: Hashable) -> None:
        """A build of this builder has failed.

        :param created_zxid: ZooKeeper's number of the change that made its record.
        :param settings: with which it was built.
        """
        with self._lock:
            own = self._own.setdefault(image, deque(maxlen=_REMEMBERED))
            before = self._histories.get(image, BuildHistory())
            # Another worker may have looked while its end was being stored.
            more = 0 if build_id in before.counted else 1
            own.append(build_id)
            self._histories[image] = replace(
                before,
                failures=before.failures + more,
                last_failure=wall_time(),
                last_begun_zxid=max(before.last_begun_zxid, created_zxid),
                settings=settings,
            )


class BuildWorker(Worker):
    """Wake it when something of an image or the configuration has changed.

    A stop ends the thread after its present build. `end_build` ends the build, too.

    :param number: of the worker in its builder, from 0.
    """

    error_text = "Error in a build worker, going on"

    def __init__(self, number: int, shared: Shared, queue: BuildQueue) -> None:
        log = logging.getLogger(log_names.build_worker(number))
        super().__init__(f"BuildWorker-{number}", shared.client, log, IDLE_SECONDS)
        self._shared = shared
        self._queue = queue
        self._attempt: BuildAttempt | None = None
        self._end_reason = ""
        shared.client.add_session_listener(self._on_session)

    def end_build(self, reason: str) -> None:
        """End the build that runs, and begin no other. Any thread; does not block."""
        self._end_reason = self._end_reason or reason
        attempt = self._attempt
        if attempt is not None:
            attempt.stop(self._end_reason)

    def _on_session(self, state: str) -> None:
        attempt = self._attempt
        if state == "lost" and attempt is not None:
            attempt.session_lost()

    def run_once(self) -> float | None:
        """Build what is due and nobody else builds; blocks as long as one build takes.

        :return: seconds until something may be due without a change; 0 after a build: others may be due.
        """
        shared = self._shared
        view = shared.images()
        if view is None:
            return None
        wanted = wanted_images(shared.config())
        own = OwnBuilds(shared.builder_id, shared.files.formats_of_builds())
        waits = []
        for image in _in_order(wanted, view):
            known = view.image(image.name)
            history = self._queue.look(known, image.settings)
            judged = self._without_foreign_request(known)
            verdict = build_due(image, judged, history, wall_time(), wanted.users(image.name), own)
            if isinstance(verdict, NotDue):
                if verdict.look_again_at is not None:
                    waits.append(verdict.look_again_at - wall_time())
                continue
            if self.stopping or self._end_reason:
                return None
            wait_seconds = self._build_alone(image, known, verdict)
            if wait_seconds is not None:
                waits.append(wait_seconds)
            if wait_seconds == 0:
                break
        return min(waits, default=None)

    def _without_foreign_request(self, view: ImageView) -> ImageView:
        """I-2: the import of a file that this host does not have is left to others."""
        source, lacking = view.requested_source, self._shared.lacking_files
        if source is None or not source.is_file or os.path.isfile(source.place):
            lacking.pop(view.name, None)
            return view
        if lacking.get(view.name) != source.place:
            lacking[view.name] = source.place
            self._shared.builds.on_change()
        return replace(view, build_requested=None, requested_source=None)

    def _build_alone(self, image: WantedImage, view: ImageView, due: Due) -> float | None:
        """Build an image if nobody else does (B-3, B-11).

        :return: 0 = it was built, or has changed; None = only a change makes it worth another look.
        """
        # Before the lock: to take and to release it is a change, which makes everybody look again.
        if not self._has_room(view, due):
            return SPACE_SECONDS
        if not self._queue.take(image.name):
            return None
        try:
            if due.look and due.source and (seconds := self._look(image, due.source, view)):
                return seconds
            with self._shared.store.build_lock(image.name) as lock:
                return self._build(image, view, due, lock)
        except ZKLockException:
            # Its release is a change.
            return None
        except ZKConflict as reason:
            # The lock was lost before the build began.
            self.log.warning("Image %s is not built: %s", image.name, reason)
            return self.error_wait_seconds
        finally:
            self._queue.give_back(image.name)

    def _look(self, image: WantedImage, source: ImageSource, view: ImageView) -> float:
        """Has the vendor the image of the newest build (I-7)? Blocks.

        :return: seconds until it is asked again; 0 = it has another one.
        """
        newest, failure = view.ready_builds()[0].record, None
        known = None if newest is None else newest.source_checksum
        variables = {**os.environ, **self._shared.config().diskimages[image.name].env_vars}
        try:
            if imports.vendor_checksum(source, variables, LOOK_SECONDS) != known:
                return 0.0
        except OSError as error:
            failure = error
        seconds = self._queue.looked(image, failed=failure is not None)
        if failure is not None:
            text = "The checksum of image %s is not known, the next look is in %.0f s: %s"
            self.log.warning(text, image.name, seconds, failure)
        return seconds

    def _has_room(self, view: ImageView, due: Due) -> bool:
        """Is there space for another build? If not, that is logged now and then."""
        problem = lacking_space(view, self._shared.files)
        if not problem:
            self._queue.without_room.over(view.name)
        elif self._queue.without_room.worth_saying(view.name):
            self.log.error("Image %s cannot be built, though %s: %s", view.name, due.reason, problem)
        return not problem

    def _build(self, image: WantedImage, view: ImageView, due: Due, lock: ZkLock) -> float | None:
        config = self._shared.config()
        if not self._still_as(view) or image.name not in config.diskimages:
            # What the decision was made on is old: the change is on its way to us.
            return None
        what = "built" if due.source is None else "imported"
        self.log.info("Image %s is to be %s: %s", image.name, what, due.reason)
        attempt = BuildAttempt(self._shared, config, image, estimate(view), self.log, due.source)
        self._attempt = attempt
        try:
            if self._end_reason:
                attempt.stop(self._end_reason)
            ready = attempt.build(lock)
        finally:
            self._attempt = None
        if not ready:
            self._note_failure(image, view, attempt)
        return 0.0

    def _still_as(self, view: ImageView) -> bool:
        """Under the lock: is what ZooKeeper has what the decision was made on?"""
        store = self._shared.store
        known = {build.id: build.state for build in view.builds.values() if build.record is not None}
        found = {build.key: build.state for build in store.builds(view.name)}
        request = store.build_request(view.name)
        asked = (None, None) if request is None else (request.state_time, request.source)
        seen = (view.build_requested, view.requested_source)
        return (known, view.paused, seen) == (found, store.paused(view.name), asked)

    def _note_failure(self, image: WantedImage, view: ImageView, attempt: BuildAttempt) -> None:
        build_id = attempt.record.key
        current = (self._shared.images() or ImagesView()).image(image.name)
        build = current.builds.get(build_id)
        # Unknown, it is as late as the request that it served.
        created = view.request_zxid if build is None else build.created_zxid
        self._queue.failed(image.name, build_id, created, image.settings)


def _in_order(wanted: WantedImages, view: ImagesView) -> Iterator[WantedImage]:
    """Images that somebody asked for first, the longest wait first; the others as they are configured."""

    def key(image: WantedImage) -> float:
        asked = view.image(image.name).build_requested
        return float("inf") if asked is None else asked

    return iter(sorted(wanted.images.values(), key=key))


# What the newest ready build of an image says of the next one: how long it takes, and how much space.

#: So many times the size of the last build must be free before the next one: it has its temporary files, too.
SPACE_FACTOR = 2


def estimate(view: ImageView) -> float | None:
    """How long the next build may take, in seconds; None = nobody knows."""
    last = next(iter(view.ready_builds()), None)
    return None if last is None or last.record is None else last.record.duration


def lacking_space(view: ImageView, files: ImageFiles) -> str:
    """Why there is no room for another build, in words; empty = there is, or nobody knows. Blocks for the disk."""
    last = next(iter(view.ready_builds()), None)
    if last is None:
        return ""
    known = None if last.record is None else last.record.size
    size = known or sum(files.sizes(view.name, last.id).values())
    free = files.free_bytes()
    if free >= SPACE_FACTOR * size:
        return ""
    return (
        f"{files.directory} has {_gibibytes(free)} free, and the last build takes {_gibibytes(size)}: "
        f"{SPACE_FACTOR} times as much must be free"
    )


def _gibibytes(size: float) -> str:
    return f"{size / (1 << 30):.1f} GiB"


# Reports to the metrics of this process what its builder builds.

#: A group of gauges.
GROUP: Final = "builds"


def publish_builds(shared: Shared) -> None:
    """What is now. Any thread; does not block."""
    paused = {name: image.paused for name, image in wanted_images(shared.config()).images.items()}
    view, building = shared.images() or ImagesView(), [key.image for key in shared.builds.current()]
    gauges = build_metrics.build_gauges(shared.host, shared.options.build_workers, view, paused, building)
    shared.registry.replace(GROUP, gauges)


# `BuildAttempt`: one build of an image, under the lock of its builds, from the record ``building`` to its end.

#: Formats of which diskimage-builder leaves no file of that name.
_WITHOUT_FILE: Final = frozenset({"docker", "squashfs"})
#: The end of a build is worth waiting for a connection that is away, in seconds.
STORE_SECONDS: Final = 120.0
#: For metrics: the exit code of a build that took too long, was stopped, or could not be started.
FAILED_STATUS: Final = 1
UNFORESEEN: Final = "an unexpected error, see above"
SESSION_LOST: Final = "the session with ZooKeeper was lost"


class BuildAttempt:
    """For the thread of a build worker; `stop` may be called by any.

    :param config: has the image.
    :param estimate: how long the build may take, in seconds; None = not known.
    :param source: import this in place of a build.
    """

    def __init__(
        self,
        shared: Shared,
        config: Config,
        wanted: WantedImage,
        estimate: float | None,
        log: logging.Logger,
        source: ImageSource | None = None,
    ) -> None:
        self.log = log
        self._shared = shared
        self._config = config
        self._image = config.diskimages[wanted.name]
        self._formats = wanted.formats
        self._estimate = estimate
        self._source = source
        self._requested = None if source is None or source.checksum_url else source
        #: The same import cannot succeed later (I-5).
        self._refused = False
        self._run: DibRun | None = None
        self._stop_reason = ""
        self.record = ImageBuild(wanted.name)

    def stop(self, reason: str) -> None:
        """End the build, if it runs; the first reason counts. Does not block."""
        self._stop_reason = self._stop_reason or reason
        run = self._run
        if run is not None:
            run.stop(self._stop_reason)

    def session_lost(self) -> None:
        """Another builder may have the lock: the build is worth nothing any more (B-8). Does not block."""
        run = self._run
        if run is not None:
            run.stop(SESSION_LOST)

    def build(self, lock: ZkLock) -> bool:
        """Build; blocks as long as it takes. Was it successful, and is that stored?

        :param lock: of the image's builds.
        :raises ZKException: the build could not be begun.
        """
        shared, record = self._shared, self.record
        record.state = states.BUILDING
        record.builder, record.builder_id = shared.host, shared.builder_id
        record.formats = sorted(self._formats)
        if self._source is not None:
            record.tell_source(self._source)
        shared.store.new_build(record, under=lock)
        self.log.info("Building image %s, build %s", record.image_name, record.key)
        progress, begun = BuildProgress(wall_time(), self._estimate), monotonic()
        with shared.builds.running(BuildKey(record.image_name, record.key), progress):
            problem = UNFORESEEN
            # B-14: an error that nobody foresaw keeps the formats, and must not keep the lock.
            with Guard(self.log, "Error in build %s of image %s", record.key, record.image_name):
                problem = self._build(progress, lock)
            spans.build_ended(record.image_name, record.key, monotonic() - begun, problem)
            if problem:
                record.state = states.FAILED
            else:
                self._complete(monotonic() - begun)
            asked = self._request() if self._refused or not problem else None
            stored = self._store(lock) and record.state == states.READY
            if stored or self._refused:
                self._serve_request(asked)
            if not stored:
                # B-9: what no record will ever name must not stay, and what failed is of no use.
                shared.files.remove(record.image_name, record.key)
        if problem:
            self.log.error("Build %s of image %s failed: %s", record.key, record.image_name, problem)
        elif stored:
            self.log.info("Build %s of image %s is ready", record.key, record.image_name)
        return stored

    def _build(self, progress: BuildProgress, lock: ZkLock) -> str:
        """Run diskimage-builder; returns why that failed, or nothing."""
        record, config, shared, begun = self.record, self._config, self._shared, monotonic()
        output = shared.files.base(record.image_name, record.key)
        job = BuildJob(
            self._image, record.key, self._formats, output, config.elements_dir, shared.options.fake, self._source
        )
        log_path = image_files.log_path(config.build_log_dir, record.image_name, record.key)
        try:
            image_files.prune(config.build_log_dir, record.image_name, config.build_log_retention)
            build_log = BuildLog(log_path)
        except OSError as error:
            return f"its log cannot be written: {error}"
        try:
            result = self._run_command(job, build_log, progress, lock)
        except (OSError, ValueError) as error:
            # A command line or a directory that cannot be had.
            build_log.write_line(str(error))
            result = RunResult(None, str(error))
        finally:
            build_log.close()
        status = FAILED_STATUS if result.status is None else result.status
        build_metrics.report_build_end(record.image_name, status, monotonic() - begun, wall_time())
        problem = result.reason or self._missing(output)
        if not problem:
            return ""
        record.formats = []
        return f"{problem}; its log is {log_path}"

    def _run_command(self, job: BuildJob, build_log: BuildLog, progress: BuildProgress, lock: ZkLock) -> RunResult:
        """:raises OSError, ValueError: it cannot be started."""
        shared, command = self._shared, command_line(job)
        lacking = _lacks_converter(job)
        if lacking:
            build_log.write_line(lacking)
            return RunResult(None, lacking)
        work = WorkDir(shared.files.directory.absolute(), temporary_directory(job, os.environ), job.name)
        begun, started = progress.since, monotonic()
        variables = environment(job, os.environ, work.path)
        last = ""
        if job.source is not None:
            variables |= imports.variables(job.source, job.output, shared.files.directory)

        def on_line(line: str) -> None:
            nonlocal last
            last = line
            if self._source is not None and line.startswith(imports.CHECKSUM):
                self._source = replace(self._source, checksum=line.removeprefix(imports.CHECKSUM))
            if progress.read(line, wall_time()):
                shared.builds.on_change()

        try:
            run = DibRun(command, variables, build_log, on_line, work.started)
            result = self._run_one(run, job.image.build_timeout, 0.0, lock)
            if job.source is not None and result.status:
                self._refused = result.status == imports.REFUSED and self._requested is not None
                result = replace(result, reason=f"{job.source.shown}: {last}")
            if result.succeeded:
                result = self._convert(job, variables, build_log, started, lock)
            progress.end(wall_time())
        finally:
            for problem in work.remove():
                self.log.error("Build %s left files or mounts behind: %s", job.name, problem)
        steps = ", ".join(f"{step} {seconds:.0f} s" for step, seconds in progress.ended)
        self.log.info("Build %s took %.0f s: %s", job.name, wall_time() - begun, steps)
        return result

    def _run_one(self, run: DibRun, timeout: float, spent: float, lock: ZkLock) -> RunResult:
        """Run a command, which `stop` ends from now on."""
        self._run = run
        try:
            # Who stops it from now on finds it; who did before, or lost the session, has notified this object only.
            if lock.epoch != self._shared.client.session_epoch:
                self.session_lost()
            if self._stop_reason:
                run.stop(self._stop_reason)
            return run.run(timeout, spent)
        finally:
            self._run = None

    def _convert(
        self, job: BuildJob, variables: Mapping[str, str], build_log: BuildLog, started: float, lock: ZkLock
    ) -> RunResult:
        """Make the formats that are made of others, then remove those that only these needed (B-18, I-6).

        :param started: when the build began, on the monotonic clock.
        """
        result = RunResult(0)
        files, build = self._shared.files, (job.image.name, job.build_id)
        conversions: dict[str, ImageConversion] = {}
        if job.source is not None:
            job = replace(job, imported=next(iter(files.formats(*build)), ""))
            conversions = {name: ImageConversion(job.imported, DRIVERS.get(name, "")) for name in job.formats}
            problem = self._impossible(job) or _lacks_converter(job)
            if problem:
                self._refused = self._requested is not None
                build_log.write_line(problem)
                return RunResult(None, problem)
        for name, conversion in {**conversions, **job.conversions}.items():
            source = files.path(*build, conversion.source)
            if not source.exists():
                return RunResult(None, f"there is no {source}, though the build succeeded")
            size, target = source.stat().st_size, files.path(*build, name)
            if name in conversions:
                form = ["-f", DRIVERS[job.imported], "-O", conversion.driver]
                commands = [[CONVERTER, "convert", *form, str(source), str(target)]]
            else:
                commands = conversion_commands(conversion, source, target, size)
            for words in commands:
                build_log.write_line(f"Making {name} of {conversion.source}: {shlex.join(words)}")
                run = DibRun(words, variables, build_log)
                result = self._run_one(run, job.image.build_timeout, monotonic() - started, lock)
                if not result.succeeded:
                    return dataclasses.replace(result, reason=f"{' '.join(words[:2])}: {result.reason}")
        unwanted = {*job.formats, job.imported} - job.wanted
        if unwanted:
            files.remove(*build, unwanted)
        return result

    def _impossible(self, job: BuildJob) -> str:
        """Which formats cannot be made of the imported one, and who wants them; empty = all can."""
        made = DRIVERS if job.imported in SAFE_SOURCES else {}
        missing = sorted(set(job.formats) - set(made))
        if not missing:
            return ""
        users = wanted_images(self._config).users(job.image.name)
        wanting = [name for name, use in users.items() if use.format in missing]
        who = f"; providers that want it: {', '.join(wanting)}" if wanting else ""
        return f"{', '.join(missing)} cannot be made of {job.imported}{who}"

    def _missing(self, output: Path) -> str:
        """A build that says that it is complete must have made what was wanted."""
        there = self._shared.files.formats(self.record.image_name, self.record.key)
        missing = sorted(self._formats - there - _WITHOUT_FILE)
        return f"there is no {output}.{missing[0]}, though the build succeeded" if missing else ""

    def _complete(self, seconds: float) -> None:
        """Fill in the record of a build that succeeded."""
        record, image = self.record, self._image
        sizes = self._shared.files.sizes(record.image_name, record.key)
        build_metrics.report_sizes(record.image_name, sizes)
        record.state = states.READY
        if self._source is not None:
            record.tell_source(self._source)
        record.username, record.python_path, record.shell_type = image.username, image.python_path, image.shell_type
        record.tell(seconds, sum(sizes.values()))

    def _request(self) -> ImageBuildRequest | None:
        """What somebody asked for that this build is; None: nobody did, or it is not known."""
        with Guard(self.log, "Request of image %s", self.record.image_name, traceback=False):
            request = self._shared.store.build_request(self.record.image_name)
            # I-3: an import is served by this very import only.
            return None if request is None or request.source != self._requested else request
        return None

    def _serve_request(self, asked: ImageBuildRequest | None) -> None:
        """B-4: remove a request now that there is a ready build, unless it came after that.

        :param asked: as `_request` said before the build became ready.
        """
        now = None if asked is None else self._request()
        if now is not None and asked is not None and (now.state_time, now.source) == (asked.state_time, asked.source):
            with Guard(self.log, "Request of image %s", self.record.image_name, traceback=False):
                self._shared.store.remove_build_request(self.record.image_name, now.version)

    def _store(self, lock: ZkLock) -> bool:
        """Store how it ended; False = that cannot be done (B-9)."""
        shared, record = self._shared, self.record
        deadline = monotonic() + STORE_SECONDS
        while True:
            lost = shared.client.session_epoch != lock.epoch
            if lost and record.state == states.READY:
                # B-8: somebody else may be building the image by now.
                record.state, record.formats = states.FAILED, []
            try:
                shared.store.store_build(record, under=None if lost else lock)
                return True
            except ZKConflict as conflict:
                self.log.error("The end of build %s is not stored: %s", record.key, conflict)
                return False
            except ZKConnectionError as error:
                if self._stop_reason or monotonic() >= deadline:
                    self.log.error("The end of build %s is not stored: %s", record.key, error)
                    return False
                shared.client.wait_connected(1.0)


# Command line and environment of a build (rules B-5, B-6, B-15). Pure functions, but for the search for the command.

COMMAND: Final = "disk-image-create"
#: What ``--fake`` runs in its place.
FAKE_BUILD: Final = os.path.join(os.path.dirname(__file__), "fake-image-create")
#: Makes an image of another one.
CONVERTER: Final = "qemu-img"
#: Formats that it makes of an imported image, as it calls them.
DRIVERS: Final = {"qcow2": "qcow2", "raw": "raw", "vhd": "vpc", "vhdx": "vhdx", "vmdk": "vmdk"}
#: Those that it may read. A vmdk can name files of this host.
SAFE_SOURCES: Final = DRIVERS.keys() - {"vmdk"}
#: Stands in ``dib-cmd`` for the directory of this package.
PACKAGE_MARK: Final = "%p"
#: Where mktemp(1) of diskimage-builder makes its directories: the first that is set.
TEMPORARY: Final = ("TMPDIR", "TMP_DIR")
DEFAULT_TEMPORARY: Final = "/tmp"
#: Messages for systemd are those of the daemon.
_NOT_INHERITED: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")


@dataclass(frozen=True)
class BuildJob:
    """What is to be built.

    :param wanted: formats that there are to be in the end.
    :param output: path of the image files without what follows the build's id.
    :param fake: build without diskimage-builder, which makes all formats itself.
    :param source: import this in place of a build.
    :param imported: format that was imported; empty = that is not known yet, or nothing is.
    """

    image: DiskImage
    build_id: str
    wanted: frozenset[str]
    output: Path
    elements_dir: str | None = None
    fake: bool = False
    source: ImageSource | None = None
    imported: str = ""

    @property
    def name(self) -> str:
        """``<image>-<build id>``, as in paths."""
        return f"{self.image.name}-{self.build_id}"

    @property
    def conversions(self) -> dict[str, ImageConversion]:
        """Formats that are made of others afterwards."""
        known = {} if self.fake and self.source is None else self.image.conversions
        return {name: known[name] for name in sorted(self.wanted - {self.imported}) if name in known}

    @property
    def formats(self) -> list[str]:
        """All that diskimage-builder is to make: one build makes them. Of an import: what is made of its format."""
        conversions = self.conversions
        made = {*self.wanted, *(one.source for one in conversions.values())}
        return sorted(made - conversions.keys() - {self.imported})


def command_line(job: BuildJob) -> list[str]:
    """The words of the command.

    :raises ValueError: ``dib-cmd`` or an element has a quote that is not closed.
    """
    if job.source is not None:
        return [*imports.PROGRAM]
    words = ["sh", FAKE_BUILD] if job.fake else _program(job.image.dib_cmd)
    words += ["-x", "-t", ",".join(job.formats), "--checksum", "--no-tmpfs"]
    if "qcow2" in job.formats:
        words += ["--qemu-img-options", "compat=0.10"]
    return [*words, "-o", str(job.output), *shlex.split(" ".join(job.image.elements))]


def _lacks_converter(job: BuildJob) -> str:
    """Why formats cannot be made of others; empty = they can, or none are to be made. Looks for the program."""
    made = [*(job.formats if job.imported else []), *job.conversions]
    searched = str(job.image.env_vars.get("PATH") or os.environ.get("PATH") or os.defpath)
    if not made or (job.source is not None and not job.imported) or shutil.which(CONVERTER, path=searched):
        return ""
    return f"qemu-img is missing, which makes {', '.join(made)}; install qemu-utils, or correct PATH: {searched}"


def conversion_commands(conversion: ImageConversion, source: Path, target: Path, size: int) -> list[list[str]]:
    """The words of the commands that make an image of another one, in their order.

    :param size: of the disk in ``source``, in bytes. The new one may be larger; what is behind the disk is zero.
    """
    whole = -(-size // conversion.multiple) * conversion.multiple
    options = ["-o", conversion.options] if conversion.options else []
    # Into the disk that is there already, because a converted one would be as large as its source. It is known to be
    # empty: else each zero of the source would be written, and take room.
    into = ["-n", "--target-is-zero", "-f", conversion.source, "-O", conversion.driver]
    return [
        [CONVERTER, "create", "-q", "-f", conversion.driver, *options, str(target), str(whole)],
        [CONVERTER, "convert", *into, str(source), str(target)],
    ]


def _program(command: str) -> list[str]:
    words = shlex.split(command.replace(PACKAGE_MARK, os.path.dirname(nodepool.__file__)))
    if not words:
        raise ValueError("dib-cmd is empty")
    if words[0] == COMMAND:
        # Beside our Python first: a virtual environment need not be on the path.
        words[0] = shutil.which(COMMAND, path=os.path.dirname(sys.executable)) or COMMAND
    return words


def environment(job: BuildJob, base: Mapping[str, str], work_dir: Path) -> dict[str, str]:
    """All variables of the build.

    :param base: of this process.
    :param work_dir: where temporary files go; see `temporary_directory`.
    """
    variables = {name: value for name, value in base.items() if name not in _NOT_INHERITED}
    variables["DIB_RELEASE"] = job.image.release
    variables["DIB_IMAGE_NAME"] = job.image.name
    variables["DIB_IMAGE_FILENAME"] = str(job.output)
    if job.elements_dir:
        variables["ELEMENTS_PATH"] = job.elements_dir
    variables.update(job.image.env_vars)
    variables.update(dict.fromkeys(TEMPORARY, str(work_dir)))
    return variables


def temporary_directory(job: BuildJob, base: Mapping[str, str]) -> Path:
    """Below which directory the temporary files of a build are to be, as diskimage-builder chooses it."""
    for variables in (job.image.env_vars, base):
        for name in TEMPORARY:
            if variables.get(name):
                return Path(variables[name])
    return Path(DEFAULT_TEMPORARY)
