# SPDX-License-Identifier: Apache-2.0
"""`ImportUpload`: AWS makes a snapshot or an AMI of an object in S3 (``import-method: snapshot``, ``image``; AW-17).

An import takes long, and goes on without us. It is known by its tags: when the builder was restarted meanwhile, the
next upload of the build takes it up again. One whose result became an image has a tag that says so. What was sent of a
file whose import had not begun is not sent again, either: see `nodepool.driver.aws.object_upload`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.aws.discard import discard_import
from nodepool.driver.aws.image_spec import PREFIX, image_import, snapshot_import
from nodepool.driver.aws.image_types import COMPLETED, FAILED_TASKS, ImportTask
from nodepool.driver.aws.object_upload import send_file
from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.framework.upload_progress import UploadInterrupted
from nodepool.exceptions import ImageCreateException, LaunchError
from nodepool.guard import Guard, OnError
from nodepool.plan.backoff import Backoff

if TYPE_CHECKING:
    from nodepool.driver.aws.client import Ec2
    from nodepool.driver.aws.image_calls import ImageCalls, ImportKind
    from nodepool.driver.aws.image_spec import ImageJob
    from nodepool.driver.aws.object_store import ObjectStore
    from nodepool.driver.aws.upload_wait import UploadWait

log = logging.getLogger("nodepool.driver.aws.images")

#: Tag of a task: the image that was made of its result.
IMAGE_KEY: Final = "nodepool_image_id"
#: Longest time of an import.
IMPORT_SECONDS: Final = 24 * 3600.0
#: How often an import is ordered that gets no answer; the token makes it one.
ATTEMPTS: Final = 4
_AGAIN: Final = Backoff(1.0, 30.0)


class ImportUpload:
    """One upload.

    :param whole: of an AMI; False = of a snapshot.
    :param wait: made by the thread that calls `run`.
    :param limit_seconds: ``image-import-timeout``.
    """

    def __init__(
        self,
        calls: ImageCalls,
        ec2: Ec2,
        store: ObjectStore,
        job: ImageJob,
        wait: UploadWait,
        limit_seconds: float | None,
        whole: bool,
    ) -> None:
        self._calls = calls
        self._ec2 = ec2
        self._store = store
        self._job = job
        self._wait = wait
        self._limit_seconds = limit_seconds
        self._kind: ImportKind = calls.image_imports if whole else calls.snapshot_imports
        self._arguments: Callable[[ImageJob, str, str], dict[str, Any]] = image_import if whole else snapshot_import
        #: Of the object: that of this upload, or of the one that was interrupted.
        self._key = job.key
        #: The import, as soon as there is one.
        self._task: ImportTask | None = None

    def run(self) -> ImportTask:
        """Upload and import; returns the completed task, whose results have all tags. Blocks.

        :raises ImageCreateException: AWS cannot import it, or it took too long.
        :raises UploadGivenUp: nobody wants it any more.
        :raises LaunchError: AWS refused it, or is away.
        :raises OSError: the file cannot be read.
        """
        with OnError(self._undo):
            self._task = self._interrupted() or self._begin()
            self._task = self._imported(self._task)
            self._discard_object()
            self._ec2.tag_now(self._task.result_ids, self._job.tags)
        return self._task

    def undo(self) -> None:
        """Its result is not wanted."""
        self._undo(ImageCreateException("it is not wanted"))

    def used_for(self, image_id: str) -> None:
        """Note that nobody needs the task any more: an image was made of its result."""
        assert self._task is not None
        try:
            self._ec2.tag_now([self._task.id], {IMAGE_KEY: image_id})
        except LaunchError as error:
            log.warning("%s: import %s is not marked as used: %s", self._wait.head, self._task.id, error)

    # -- inside --

    def _interrupted(self) -> ImportTask | None:
        """What an upload of the same build has begun; it is that of this upload from now on."""
        wanted = self._job.build_tags.items()
        for task in self._kind.tasks():
            ours = wanted <= dict(task.metadata).items() and IMAGE_KEY not in task.metadata
            if ours and task.status not in FAILED_TASKS and self._has_result(task):
                log.info("%s: import %s of an interrupted upload is taken up again", self._wait.head, task.id)
                self._ec2.tag_now([task.id], self._job.tags)
                self._wait.sent(self._job.size)
                if task.bucket == self._store.bucket and task.key.startswith(PREFIX):
                    self._key = task.key
                return task
        return None

    def _has_result(self, task: ImportTask) -> bool:
        """Not if somebody has deleted it."""
        if task.status != COMPLETED:
            return True
        found = [self._calls.snapshot(snapshot_id) for snapshot_id in task.snapshot_ids]
        return bool(found) and None not in found

    def _begin(self) -> ImportTask:
        self._wait.check()
        self._key = send_file(self._store, self._job, self._wait)
        return self._wait.when_allowed(self._order, self._limit_seconds)

    def _order(self) -> ImportTask:
        arguments = self._arguments(self._job, self._store.bucket, self._key)
        for attempt in range(1, ATTEMPTS):
            try:
                return self._kind.begin(arguments)
            except CloudAway as error:
                log.debug("%s: %s", self._wait.head, error)
                self._wait.pause(_AGAIN.pause(attempt))
        return self._kind.begin(arguments)

    def _imported(self, task: ImportTask) -> ImportTask:
        told = ""
        for _ in self._wait.looks(f"import {task.id}", IMPORT_SECONDS):
            try:
                task = self._kind.task(task.id)
            except CloudAway as error:
                # It goes on meanwhile.
                log.debug("%s: %s", self._wait.head, error)
                continue
            if task.status == COMPLETED:
                return task
            if task.status in FAILED_TASKS:
                why = task.message or "AWS does not say why"
                raise ImageCreateException(f"{self._wait.head}: import {task.id} is {task.status}: {why}")
            if task.message != told:
                told = task.message
                log.debug("%s: import %s: %s, %s%%", self._wait.head, task.id, told, task.progress or "?")
        raise AssertionError("the looks end with an error")

    def _undo(self, error: BaseException) -> None:
        """After an error nothing is left, but for what the next upload goes on with: import, object, parts of it."""
        if isinstance(error, UploadInterrupted) or self._wait.stopped:
            if self._task is None:
                log.info("%s: what was sent of the file stays", self._wait.head)
            else:
                log.info("%s: import %s goes on", self._wait.head, self._task.id)
            return
        if self._task is not None:
            with Guard(log, "%s: import %s may be left over", self._wait.head, self._task.id, traceback=False):
                discard_import(self._ec2, self._calls, self._kind, self._task.id)
        self._discard_object()

    def _discard_object(self) -> None:
        key, level = self._key, logging.WARNING
        with Guard(log, "%s: object %s may be left over", self._wait.head, key, level=level, traceback=False):
            self._store.delete(key)
