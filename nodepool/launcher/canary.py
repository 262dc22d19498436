# SPDX-License-Identifier: Apache-2.0
"""Images that go live by evidence (rules CA).

First which upload a launch tries, and what this launcher counts of it (`Trials`). Then the thread that stores what was
counted, and promotes a candidate or rolls it back (`CanaryWorker`). Decisions are in `nodepool.plan.promotion`.
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver.framework.fact import Repeats
from nodepool.exceptions import LaunchKeyscanException, ZKConflict, ZKConnectionError, ZKLockException
from nodepool.guard import Guard
from nodepool.model import states
from nodepool.model.image import CANDIDATE_LABEL, CHECK_BY_LABEL, ImageUpload, ImageView
from nodepool.model.record import InvalidRecord
from nodepool.model.request import CHECK_REQUESTOR, NodeRequest, checked_upload
from nodepool.model.status import CandidateStatus
from nodepool.plan.images import overtaken
from nodepool.plan.launch import ANSWERED_REQUEST_STATES, classify
from nodepool.plan.promotion import (
    CANARY,
    CHECK,
    EARLY_SECONDS,
    OF_THE_IMAGE,
    Arms,
    Counts,
    Evidence,
    Trial,
    Verdict,
    is_late,
    judge,
)
from nodepool.runtime.worker import Worker
from nodepool.zk import paths, transactions
from nodepool.zk.caches import path_of_upload

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.model.node import Node
    from nodepool.zk.nodes import NodepoolCache
    from nodepool.zk.zookeeper import ZooKeeper

#: Between two looks at the candidates, in seconds. Without candidates a change of an image causes one.
LOOK_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 30.0
#: So long a record without a candidate stays: another launcher may know one that this one has not read yet.
LEFTOVER_SECONDS: Final = 60.0
#: From a request for a check that failed, but not by the image, to the next one.
CHECK_PAUSE_SECONDS: Final = 60.0
#: Longest wait for the cache to have read what was reported to it.
SETTLE_SECONDS: Final = 5.0


class Step(NamedTuple):
    """What is done with a candidate. :param about: see `Trial`."""

    about: tuple[str, str]
    step: str


class Trials:
    """Any thread may call; nothing blocks. ``_lock`` guards the counts, and is held for a few operations.

    :param chance: a number between 0 and 1, another one each time.
    """

    def __init__(self, cache: NodepoolCache, chance: Callable[[], float] = random.random) -> None:
        self._cache = cache
        self._chance = chance
        self._lock = threading.Lock()
        #: Provider and image -> step; replaced as a whole.
        self.steps: Mapping[tuple[str, str], Step] = {}
        #: Why checks failed that were launched here.
        self.failures: dict[tuple[str, str], str] = {}
        #: Candidates that a job has used for its check.
        self.used: set[tuple[str, str]] = set()
        self._counts: dict[tuple[str, str], Arms] = {}
        #: Nodes that were launched here -> their trial, and since when they are in use, in seconds since the epoch. Who
        #: did not see them in use knows when they were ready.
        self._nodes: dict[str, tuple[Trial, float]] = {}
        cache.nodes.add_listener(self._node_changed)

    def choose(self, provider: str, label: str, image: str, request: NodeRequest) -> Trial | None:
        """See `PoolWorkerView.trial`."""
        view = self._cache.images.snapshot().image(image)
        candidate, current = view.candidate(provider), view.current_upload(provider)
        if candidate is None or candidate.candidate is None or current is None:
            return None
        pair, checked = about(candidate, current), checked_upload(request)
        if checked == pair[0] or label.endswith(CANDIDATE_LABEL):
            return Trial(candidate, pair, is_candidate=True, is_check=True)
        if checked is not None or self.steps.get((provider, image)) != Step(pair, CANARY):
            return None
        chosen = self._chance() < candidate.candidate.canary
        return Trial(candidate if chosen else current, pair, chosen)

    def ended(self, node: Node, trial: Trial, error: Exception | None, seconds: float) -> None:
        """See `PoolWorkerView.trial_ended`."""
        if error is None:
            with self._lock:
                self._nodes[node.key] = (trial, wall_time())
            self._add(trial, Counts(launched=1, ready_seconds=seconds))
        elif classify(error) in OF_THE_IMAGE:
            if trial.is_check:
                self.failures[trial.about] = str(error) or type(error).__name__
            unreachable = int(isinstance(error, LaunchKeyscanException))
            self._add(trial, Counts(launched=1, failed=1, unreachable=unreachable))

    def counted(self, of: tuple[str, str]) -> Arms:
        """What was counted here since the launcher started."""
        return self._counts.get(of, Arms())

    def forget_others(self, live: set[tuple[str, str]]) -> None:
        """Keep only what was counted of these."""
        with self._lock:
            self._counts = {of: arms for of, arms in self._counts.items() if of in live}
            self.failures = {of: text for of, text in self.failures.items() if of in live}
            self.used &= live
            self._nodes = {node_id: trial for node_id, trial in self._nodes.items() if trial[0].about in live}

    def _add(self, trial: Trial, counts: Counts) -> None:
        if trial.is_check:
            # It is none of those that were chosen by chance.
            return
        more = Arms(candidate=counts) if trial.is_candidate else Arms(control=counts)
        with self._lock:
            self._counts[trial.about] = self._counts.get(trial.about, Arms()) + more

    def _node_changed(self, node_id: str) -> None:
        """In the thread of the cache."""
        for one in [node_id] if node_id else list(self._nodes):
            known = self._nodes.get(one)
            if known is not None:
                self._look(one, *known)

    def _look(self, node_id: str, trial: Trial, since: float) -> None:
        node = self._cache.nodes.get(node_id)
        if node is not None and node.state == states.IN_USE:
            with self._lock:
                self._nodes[node_id] = (trial, node.state_time or since)
        elif node is None or node.state not in (states.BUILDING, states.READY):
            with self._lock:
                self._nodes.pop(node_id, None)
            if node is not None and node.state == states.HOLD:
                self._add(trial, Counts(held=1))
            elif node is not None and node.state == states.USED:
                if trial.is_check:
                    self.used.add(trial.about)
                if (node.state_time or math.inf) <= since + EARLY_SECONDS:
                    self._add(trial, Counts(early=1))


def about(candidate: ImageUpload, current: ImageUpload) -> tuple[str, str]:
    """See `Trial`."""
    return path_of_upload(candidate), path_of_upload(current)


class CanaryWorker(Worker):
    """One thread per launcher. All launchers of a provider do the same: of several that decide one succeeds (CA-6)."""

    error_text = "Error with a candidate, going on"

    def __init__(self, zk: ZooKeeper, cache: NodepoolCache, config: Callable[[], Config], trials: Trials) -> None:
        super().__init__("CanaryWorker", zk.client, logging.getLogger(log_names.CANARY_WORKER), IDLE_SECONDS)
        self._zk, self._cache, self._config, self._trials = zk, cache, config, trials
        #: Of its entries: one that is started anew has counted nothing yet.
        self._process = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        #: Of the candidates of the last pass; replaced as a whole.
        self.statuses: Sequence[CandidateStatus] = ()
        #: Path of a candidate -> requests for nodes to check it on, as of the last pass.
        self._checks: Mapping[str, Sequence[NodeRequest]] = {}
        self._repeats = Repeats()
        self._sweep_at = -math.inf

    def run_once(self) -> float | None:
        if not self._cache.images.complete:
            return 1.0
        steps: dict[tuple[str, str], Step] = {}
        statuses: list[CandidateStatus] = []
        images = self._cache.images.snapshot().images.values()
        found = [(image, one) for image in images for one in image.candidates()]
        self._checks = self._requested_checks()
        live: set[tuple[str, str]] = set()
        for image, upload in found:
            pair = about(upload, image.current_upload(upload.provider_name) or upload)
            # What was counted stays until it has ended, also if it could not be stored now.
            live.add(pair)
            if upload.provider_name in self._config().providers:
                place = (upload.provider_name, image.name)
                text = "Image %s: its candidate is left for now"
                with Guard(self.log, text, image.name, but=ZKConnectionError) as guard:
                    status = self._look(image, upload, pair)
                    if status is not None:
                        statuses.append(status)
                        steps[place] = Step(pair, status.step)
                if guard.error is not None and place in self._trials.steps:
                    steps[place] = self._trials.steps[place]
        self._trials.steps, self.statuses = steps, statuses
        self._trials.forget_others(live)
        if monotonic() >= self._sweep_at:
            self._sweep_at = monotonic() + IDLE_SECONDS
            self._remove_leftovers([upload for _, upload in found])
            self._discard_ready({path_of_upload(upload) for image in images for upload in _bad_uploads(image)})
            if any(str(name).endswith(CANDIDATE_LABEL) for name in self._config().labels):
                self._discard_for_others({path_of_upload(upload) for _, upload in found})
        return LOOK_SECONDS if steps else None

    def _look(self, image: ImageView, upload: ImageUpload, pair: tuple[str, str]) -> CandidateStatus | None:
        """Note what was counted of a candidate, and end it if it is time; None = it has ended, or waits for another."""
        current, promotion = image.current_upload(upload.provider_name), upload.candidate
        build = image.builds.get(upload.build_id)
        reason = overtaken(build, image, upload.provider_name, by_candidates=False)
        if current is None or promotion is None or current is upload:
            self._end(image, upload, Verdict(True, "there is no other ready upload"))
        elif reason is not None:
            self._end(image, upload, Verdict(False, reason), pause=False)
        elif upload is image.candidate(upload.provider_name):
            now = wall_time()
            evidence = self._note(upload, pair)
            verdict = judge(promotion, evidence, now)
            if verdict.promoted is None:
                text = verdict.text
                if evidence.step != CHECK:
                    self._end_checks(pair[0])
                elif promotion.check != CHECK_BY_LABEL:
                    text = self._request_check(upload, image.name) or text
                late = is_late(promotion, evidence, now)
                place = (image.name, upload.provider_name, upload.build_id)
                return CandidateStatus(*place, evidence.step, evidence.since, text, late)
            self._end(image, upload, verdict)
        return None

    # -- the check: a launcher requests a node of the candidate, as any client does, and who serves it checks it --

    def _requested_checks(self) -> dict[str, list[NodeRequest]]:
        found: dict[str, list[NodeRequest]] = {}
        for request in self._cache.requests.values():
            path = checked_upload(request)
            if path is not None:
                found.setdefault(path, []).append(request)
        return found

    def _passed(self, path: str) -> bool:
        """Is a node ready that is made of a candidate and passed its check?"""
        nodes = [self._cache.nodes.get(one) for request in self._checks.get(path, ()) for one in request.nodes]
        return any(node is not None and (node.image_id, node.state) == (path, states.READY) for node in nodes)

    def _request_check(self, upload: ImageUpload, image: str) -> str | None:
        """Request a node of a candidate, unless one is requested. Returns why none can be; None = one can."""
        path, now = path_of_upload(upload), wall_time()
        for request in self._checks.get(path, ()):
            ended = request.state in ANSWERED_REQUEST_STATES
            if not ended or now <= (request.state_time or 0.0) + CHECK_PAUSE_SECONDS:
                return None
            # It got a node of another image from a launcher of an old release, or none could be launched.
            self._end_check(request)
        label = self._label_for_check(upload.provider_name, image)
        if label is None:
            text = "no label of the provider can check it: it needs ready-check-key and host-key-checking in all pools"
            if self._repeats.worth_saying(path):
                self.log.warning("Candidate of image %s in %s: %s", image, upload.provider_name, text)
            return text
        try:
            lock = transactions.acquire(self._client, paths.election("canary"), blocking=False)
        except ZKLockException:
            return None
        try:
            if self._cache.wait_settled(SETTLE_SECONDS) and path not in self._requested_checks():
                request = NodeRequest()
                request.state, request.node_types, request.reuse = states.REQUESTED, [label], False
                request.requestor, request.requestor_data = CHECK_REQUESTOR, {"upload": path}
                request.provider, request.event_id = upload.provider_name, uuid.uuid4().hex
                self._zk.storeNodeRequest(request)
                self.log.info("Request %s is for the check of upload %s of image %s", request.id, upload.id, image)
        finally:
            transactions.release(self._client, lock)
        return None

    def _label_for_check(self, provider: str, image: str) -> str | None:
        """One that can check an image in each pool that has it: any of them may serve the request."""
        usable: dict[str, bool] = {}
        for pool in self._config().providers[provider].pools.values():
            for label in pool.labels.values() if isinstance(pool.labels, dict) else ():
                able = getattr(label, "host_key_checking", False) and getattr(label, "ready_check_key", None)
                same = getattr(getattr(label, "diskimage", None), "name", None) == image
                usable[str(label.name)] = usable.get(str(label.name), True) and bool(able) and same
        return next((name for name, able in usable.items() if able), None)

    def _end_checks(self, path: str) -> None:
        for request in self._checks.get(path, ()):
            self._end_check(request)

    def _end_check(self, request: NodeRequest) -> None:
        """Give back what a request for a check has, and remove it. Others may do so at the same time."""
        for node in filter(None, map(self._cache.nodes.get, request.nodes)):
            if node.state == states.READY and node.allocated_to == request.id:
                self._discard(node.copy())
        self._zk.deleteNodeRequest(request)

    def _note(self, upload: ImageUpload, pair: tuple[str, str]) -> Evidence:
        """Store what was counted here; all that is stored then. Blocks."""
        path, mine = _path(upload), self._trials.counted(pair)
        check = None if upload.candidate is None else upload.candidate.check
        by_label = check == CHECK_BY_LABEL

        def noted(data: bytes | None) -> bytes:
            found = None if data is None else self._read(path, data)
            if found is None or found.control != pair[1]:
                # Compared with another upload, what was counted says nothing.
                found = Evidence(control=pair[1], step=CHECK if check else CANARY, since=wall_time())
                data = None
            fresh = found if mine == Arms() else replace(found, launchers={**found.launchers, self._process: mine})
            if found.step == CHECK and (pair in self._trials.used if by_label else self._passed(pair[0])):
                fresh = replace(fresh, step=CANARY, since=wall_time())
            elif found.step == CHECK:
                fresh = replace(fresh, failure=self._trials.failures.get(pair, found.failure))
            return data if data is not None and fresh == found else paths.encode(fresh.to_dict())

        return Evidence.of_record(paths.decode(transactions.replace(self._client, path, noted)))

    def _read(self, path: str, data: bytes) -> Evidence | None:
        try:
            return Evidence.of_record(paths.decode(data))
        except InvalidRecord as problem:
            if self._repeats.worth_saying(path):
                self.log.error("Counting anew: %s cannot be read: %s", path, problem)
            return None

    def _end(self, image: ImageView, upload: ImageUpload, verdict: Verdict, *, pause: bool = True) -> None:
        promoted = verdict.promoted is True
        pauses = pause and not promoted and not image.paused
        self._end_checks(path_of_upload(upload))
        where = f"image {image.name} in {upload.provider_name}: upload {upload.id} of build {upload.build_id}"
        current = image.current_upload(upload.provider_name)
        try:
            self._zk.images.end_candidacy(upload.copy(), verdict.text, current, promoted=promoted, pause=pauses)
        except ZKConflict as conflict:
            # Another launcher, a builder or an operator was faster.
            self.log.debug("No candidate any more: %s: %s", where, conflict)
            return
        transactions.remove(self._client, _path(upload))
        if promoted:
            self.log.info("Promoted: %s: %s", where, verdict.text)
            return
        self.log.warning("Rolled back: %s: %s", where, verdict.text)
        self._discard_ready({path_of_upload(upload)})

    def _discard_ready(self, of: set[str]) -> None:
        """Delete unused ready nodes that are made of these uploads."""
        for node in self._cache.nodes.values() if of else ():
            if node.image_id in of:
                self._discard_unused(node)

    def _discard_for_others(self, candidates: set[str]) -> None:
        """Delete unused ready nodes of former candidates: a job would take one for a node of the next (CA-10)."""
        for node in self._cache.nodes.values():
            is_for_check = any(name.endswith(CANDIDATE_LABEL) for name in node.type)
            if is_for_check and str(node.image_id).startswith(paths.IMAGES) and node.image_id not in candidates:
                self._discard_unused(node)

    def _discard_unused(self, node: Node) -> None:
        if node.state == states.READY and node.allocated_to is None:
            with Guard(self.log, "Ready node %s of the image stays", node.id, but=ZKConnectionError):
                self._discard(node.copy())

    def _discard(self, node: Node) -> None:
        node.state = states.DELETING
        try:
            self._zk.nodes.save_unlocked(node)
        except ZKConflict as conflict:
            self.log.debug("Node %s: %s", node.id, conflict)

    def _remove_leftovers(self, candidates: Sequence[ImageUpload]) -> None:
        """Records and checks of candidates that ended otherwise, or while their launcher did."""
        now, records = wall_time(), {_path(upload) for upload in candidates}
        for name, _, stat in transactions.read_below(self._client, paths.CANARIES):
            path = f"{paths.CANARIES}/{name}"
            if path not in records and stat.mtime / 1000 < now - LEFTOVER_SECONDS:
                transactions.remove(self._client, path)
        live = {path_of_upload(upload) for upload in candidates}
        for path, requests in self._checks.items():
            for request in requests:
                if path not in live and (request.state_time or 0.0) < now - LEFTOVER_SECONDS:
                    self._end_check(request)


def _bad_uploads(image: ImageView) -> Iterator[ImageUpload]:
    """Candidates that were rolled back. Launches that had begun bring more nodes of them."""
    for upload in (one for build in image.builds.values() for one in build.all_uploads()):
        used = upload is image.current_upload(upload.provider_name)
        if upload.state == states.READY and upload.rolled_back and upload.verdict and not used:
            yield upload


def _path(upload: ImageUpload) -> str:
    return paths.canary(upload.build_id, upload.provider_name, upload.key)
