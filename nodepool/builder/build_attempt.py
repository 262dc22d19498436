# SPDX-License-Identifier: Apache-2.0
"""`BuildAttempt`: one build of an image, under the lock of its builds, from the record ``building`` to its end."""

from __future__ import annotations

import dataclasses
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import nodepool
from nodepool.builder import fake_build, image_files
from nodepool.builder.dib import DibRun, RunResult
from nodepool.builder.image_files import BuildLog, ImageFiles
from nodepool.builder.progress import BuildProgress, RunningBuilds
from nodepool.builder.work_dir import WorkDir
from nodepool.clock import monotonic, wall_time
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.guard import Guard
from nodepool.metrics import reports as build_metrics
from nodepool.model import states
from nodepool.model.image import ImageBuild
from nodepool.tracing import spans

if TYPE_CHECKING:
    from nodepool.config.objects import DiskImage
    from nodepool.driver.config import ImageConversion
    from nodepool.zk.client import ZooKeeperClient
    from nodepool.zk.images import ImageStore
    from nodepool.zk.locks import ZkLock

#: Formats of which diskimage-builder leaves no file of that name.
_WITHOUT_FILE: Final = frozenset({"docker", "squashfs"})
#: The end of a build is worth waiting for a connection that is away, in seconds.
STORE_SECONDS: Final = 120.0
#: For metrics: the exit code of a build that took too long, was stopped, or could not be started.
FAILED_STATUS: Final = 1
UNFORESEEN: Final = "an error that nobody foresaw, see above"
SESSION_LOST: Final = "the session with ZooKeeper was lost"


@dataclass(frozen=True)
class BuildServices:
    """What builds use.

    :param builder: FQDN of this host.
    :param builder_id: of this builder.
    :param fake: build without diskimage-builder.
    """

    client: ZooKeeperClient
    store: ImageStore
    files: ImageFiles
    running: RunningBuilds
    builder: str
    builder_id: str
    fake: bool = False


@dataclass(frozen=True)
class BuildSettings:
    """What the configuration says of a build."""

    image: DiskImage
    formats: frozenset[str]
    log_dir: str
    log_retention: int
    elements_dir: str | None


class BuildAttempt:
    """For the thread of a build worker; `stop` may be called by any.

    :param estimate: how long the build may take, in seconds; None = not known.
    """

    def __init__(
        self, services: BuildServices, settings: BuildSettings, estimate: float | None, log: logging.Logger
    ) -> None:
        self.log = log
        self._services = services
        self._settings = settings
        self._estimate = estimate
        self._run: DibRun | None = None
        self._stop_reason = ""
        self.record = ImageBuild(settings.image.name)

    def stop(self, reason: str) -> None:
        """End the build, if it runs; the first reason counts. Does not block."""
        self._stop_reason = self._stop_reason or reason
        run = self._run
        if run is not None:
            run.stop(self._stop_reason)

    def session_lost(self) -> None:
        """The lock is somebody else's, perhaps: the build is worth nothing any more (B-8). Does not block."""
        run = self._run
        if run is not None:
            run.stop(SESSION_LOST)

    def build(self, lock: ZkLock) -> bool:
        """Build; blocks as long as it takes. Was it successful, and is that stored?

        :param lock: of the image's builds.
        :raises ZKException: the build could not be begun.
        """
        services, record = self._services, self.record
        record.state = states.BUILDING
        record.builder, record.builder_id = services.builder, services.builder_id
        record.formats = sorted(self._settings.formats)
        services.store.new_build(record, under=lock)
        self.log.info("Building image %s, build %s", record.image_name, record.key)
        progress = BuildProgress(wall_time())
        begun = monotonic()
        with services.running.running(record.image_name, record.key, progress, self._estimate):
            problem = UNFORESEEN
            # B-14: an error that nobody foresaw keeps the formats, and must not keep the lock.
            with Guard(self.log, "Error in build %s of image %s", record.key, record.image_name):
                problem = self._build(progress, lock)
            spans.build_ended(record.image_name, record.key, monotonic() - begun, problem)
            if problem:
                record.state = states.FAILED
            else:
                self._complete(monotonic() - begun)
            asked = None if problem else self._request_time()
            stored = self._store(lock) and record.state == states.READY
            if stored:
                self._serve_request(asked)
            else:
                # B-9: what no record will ever name must not stay, and what failed is of no use.
                services.files.remove(record.image_name, record.key)
        if problem:
            self.log.error("Build %s of image %s failed: %s", record.key, record.image_name, problem)
        elif stored:
            self.log.info("Build %s of image %s is ready", record.key, record.image_name)
        return stored

    def _build(self, progress: BuildProgress, lock: ZkLock) -> str:
        """Run diskimage-builder; returns why that failed, or nothing."""
        record, settings, begun = self.record, self._settings, monotonic()
        output = self._services.files.base(record.image_name, record.key)
        conversions = {} if self._services.fake else settings.image.conversions
        job = make_job(settings.image, record.key, settings.formats, output, settings.elements_dir, conversions)
        log_path = image_files.log_path(settings.log_dir, record.image_name, record.key)
        try:
            image_files.prune(settings.log_dir, record.image_name, settings.log_retention)
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
        services = self._services
        prefix: Sequence[str] | None = [sys.executable, "-I", fake_build.__file__] if services.fake else None
        command = command_line(job, prefix)
        searched = str(job.variables.get("PATH") or os.environ.get("PATH") or os.defpath)
        if job.conversions and shutil.which(CONVERTER, path=searched) is None:
            made = ", ".join(job.conversions)
            reason = f"qemu-img is missing, which makes {made}; install qemu-utils, or correct PATH: {searched}"
            build_log.write_line(reason)
            return RunResult(None, reason)
        work = WorkDir(services.files.directory.absolute(), temporary_directory(job, os.environ), job.name)
        begun, started = progress.since, monotonic()
        variables = environment(job, os.environ, work.path)

        def on_line(line: str) -> None:
            if progress.read(line, wall_time()):
                services.running.step(job.build_id, progress)

        try:
            run = DibRun(command, variables, build_log, on_line, work.started)
            result = self._run_one(run, job.timeout, 0.0, lock)
            if result.succeeded:
                result = self._convert(job, variables, build_log, started, lock)
            progress.end(wall_time())
        finally:
            for problem in work.remove():
                self.log.error("Build %s left files or mounts behind: %s", job.name, problem)
        build_metrics.report_steps(self.record.image_name, [(step.name, step.seconds) for step in progress.ended])
        steps = ", ".join(f"{step.name} {step.seconds:.0f} s" for step in progress.ended)
        self.log.info("Build %s took %.0f s: %s", job.name, wall_time() - begun, steps)
        return result

    def _run_one(self, run: DibRun, timeout: float, spent: float, lock: ZkLock) -> RunResult:
        """Run a command, which `stop` ends from now on."""
        self._run = run
        try:
            # Who stops it from now on finds it; who did before, or lost the session, has notified this object only.
            if lock.epoch != self._services.client.session_epoch:
                self.session_lost()
            if self._stop_reason:
                run.stop(self._stop_reason)
            return run.run(timeout, spent)
        finally:
            self._run = None

    def _convert(
        self, job: BuildJob, variables: Mapping[str, str], build_log: BuildLog, started: float, lock: ZkLock
    ) -> RunResult:
        """Make the formats that are made of others, then remove those that only these needed (B-18).

        :param started: when the build began, on the monotonic clock.
        """
        result = RunResult(0)
        files, build = self._services.files, (job.image, job.build_id)
        for name, conversion in job.conversions.items():
            source = files.path(*build, conversion.source)
            if not source.exists():
                return RunResult(None, f"there is no {source}, though the build succeeded")
            size = source.stat().st_size
            for words in conversion_commands(conversion, source, files.path(*build, name), size):
                build_log.write_line(f"Making {name} of {conversion.source}: {shlex.join(words)}")
                run = DibRun(words, variables, build_log)
                result = self._run_one(run, job.timeout, monotonic() - started, lock)
                if not result.succeeded:
                    return dataclasses.replace(result, reason=f"{' '.join(words[:2])}: {result.reason}")
        unwanted = set(job.formats) - self._settings.formats
        if unwanted:
            files.remove(*build, unwanted)
        return result

    def _missing(self, output: Path) -> str:
        """A build that says that it is complete must have made what was wanted."""
        there = self._services.files.formats(self.record.image_name, self.record.key)
        missing = sorted(self._settings.formats - there - _WITHOUT_FILE)
        return f"there is no {output}.{missing[0]}, though the build succeeded" if missing else ""

    def _complete(self, seconds: float) -> None:
        """Fill in the record of a build that succeeded."""
        record, image = self.record, self._settings.image
        sizes = self._services.files.sizes(record.image_name, record.key)
        build_metrics.report_sizes(record.image_name, sizes)
        record.state = states.READY
        record.username, record.python_path, record.shell_type = image.username, image.python_path, image.shell_type
        record.tell(seconds, sum(sizes.values()))

    def _request_time(self) -> float | None:
        """When somebody asked for a build, in seconds since the epoch; None: nobody did, or it is not known."""
        with Guard(self.log, "Request of image %s", self.record.image_name, traceback=False):
            request = self._services.store.build_request(self.record.image_name)
            return None if request is None else request.state_time
        return None

    def _serve_request(self, asked: float | None) -> None:
        """B-4: remove a request now that there is a ready build, unless it came after that.

        :param asked: as `_request_time` said before the build became ready.
        """
        if asked is not None and self._request_time() == asked:
            with Guard(self.log, "Request of image %s", self.record.image_name, traceback=False):
                self._services.store.remove_build_request(self.record.image_name)

    def _store(self, lock: ZkLock) -> bool:
        """Store how it ended; False = that cannot be done (B-9)."""
        services, record = self._services, self.record
        deadline = monotonic() + STORE_SECONDS
        while True:
            lost = services.client.session_epoch != lock.epoch
            if lost and record.state == states.READY:
                # B-8: somebody else may be building the image by now.
                record.state, record.formats = states.FAILED, []
            try:
                services.store.store_build(record, under=None if lost else lock)
                return True
            except ZKConflict as conflict:
                self.log.error("The end of build %s is not stored: %s", record.key, conflict)
                return False
            except ZKConnectionError as error:
                if self._stop_reason or monotonic() >= deadline:
                    self.log.error("The end of build %s is not stored: %s", record.key, error)
                    return False
                services.client.wait_connected(1.0)


# Command line and environment of a build (rules B-5, B-6, B-15). Pure but for the search for the command.

COMMAND: Final = "disk-image-create"
#: Makes an image of another one.
CONVERTER: Final = "qemu-img"
#: Stands in ``dib-cmd`` for the directory of this package.
PACKAGE_MARK: Final = "%p"
#: Where mktemp(1) of diskimage-builder makes its directories: the first that is set.
TEMPORARY: Final = ("TMPDIR", "TMP_DIR")
DEFAULT_TEMPORARY: Final = "/tmp"
#: Messages for systemd are those of the daemon.
_NOT_INHERITED: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")


@dataclass(frozen=True)
class BuildJob:
    """What is to be built. Times are in seconds.

    :param formats: all that diskimage-builder is to make: one build makes them.
    :param conversions: formats that are made of these afterwards.
    :param output: path of the image files without what follows the build's id.
    :param command: ``dib-cmd``.
    """

    image: str
    build_id: str
    formats: Sequence[str]
    output: Path
    command: str = COMMAND
    release: str = ""
    elements: Sequence[str] = ()
    elements_dir: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 28800
    conversions: Mapping[str, ImageConversion] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``<image>-<build id>``, as in paths."""
        return f"{self.image}-{self.build_id}"


def make_job(
    image: DiskImage,
    build_id: str,
    formats: Iterable[str],
    output: Path,
    elements_dir: str | None,
    conversions: Mapping[str, ImageConversion],
) -> BuildJob:
    """The job for an image of the configuration.

    :param conversions: how some formats are made of others.
    """
    needed = {name: conversions[name] for name in sorted(formats) if name in conversions}
    return BuildJob(
        image.name,
        build_id,
        sorted({*formats, *(one.source for one in needed.values())} - needed.keys()),
        output,
        image.dib_cmd,
        image.release,
        tuple(image.elements),
        elements_dir,
        dict(image.env_vars),
        image.build_timeout,
        needed,
    )


def command_line(job: BuildJob, prefix: Sequence[str] | None = None) -> list[str]:
    """The words of the command.

    :param prefix: instead of ``dib-cmd``.
    :raises ValueError: ``dib-cmd`` or an element has a quote that is not closed.
    """
    words = list(prefix) if prefix is not None else _program(job.command)
    words += ["-x", "-t", ",".join(job.formats), "--checksum", "--no-tmpfs"]
    if "qcow2" in job.formats:
        words += ["--qemu-img-options", "compat=0.10"]
    return [*words, "-o", str(job.output), *shlex.split(" ".join(job.elements))]


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
    variables["DIB_RELEASE"] = job.release
    variables["DIB_IMAGE_NAME"] = job.image
    variables["DIB_IMAGE_FILENAME"] = str(job.output)
    if job.elements_dir:
        variables["ELEMENTS_PATH"] = job.elements_dir
    variables.update(job.variables)
    variables.update(dict.fromkeys(TEMPORARY, str(work_dir)))
    return variables


def temporary_directory(job: BuildJob, base: Mapping[str, str]) -> Path:
    """Below which directory the temporary files of a build are to be, as diskimage-builder chooses it."""
    for variables in (job.variables, base):
        for name in TEMPORARY:
            if variables.get(name):
                return Path(variables[name])
    return Path(DEFAULT_TEMPORARY)
