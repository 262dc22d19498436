# SPDX-License-Identifier: Apache-2.0
"""What can be set in the simulated cluster while it runs: times, faults of pods, of watches and of calls.

Every field has the same name in JSON (admin endpoint) and in Python. Times are in seconds; a range is
``[least, most]``, drawn evenly from the simulator's seeded generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from simulators.base.rules import ErrorRule, Range, Rule, check_kind
from simulators.base.settings import SimulatorSettings

#: What becomes of a pod.
RUNNING, SUCCEEDED, FAILED, PENDING = "running", "succeeded", "failed", "pending"
IMAGE_PULL_ERROR, CONFIG_ERROR, INVALID_IMAGE = "image-pull-error", "config-error", "invalid-image"
OUTCOMES = (RUNNING, SUCCEEDED, FAILED, PENDING, IMAGE_PULL_ERROR, CONFIG_ERROR, INVALID_IMAGE)
#: Kinds of `WatchRule`.
END, CUT, SILENT, EXPIRED, GARBAGE = "end", "cut", "silent", "expired", "garbage"


@dataclass
class PodRule(Rule):
    """A pod that does not simply run.

    :param outcome: ``running``, ``succeeded`` and ``failed`` (its container ends; with ``restartPolicy: Always`` it is
        restarted for ever), ``pending`` (stays in ContainerCreating), ``image-pull-error``, ``config-error`` or
        ``invalid-image`` (its container waits with such a reason).
    :param pod: shell pattern of ``<namespace>/<name>``.
    :param message: what the kubelet says; None for a usual text.
    :param after_seconds: how long a pod runs that ends.
    :param mends_seconds: after that time a container that waits starts nevertheless; None: never.
    :param stuck: the kubelet never says that the pod has ended: it stays in Terminating.
    """

    outcome: str = RUNNING
    pod: str = "*"
    message: str | None = None
    after_seconds: float = 0.0
    mends_seconds: float | None = None
    stuck: bool = False

    def __post_init__(self) -> None:
        check_kind(self.outcome, OUTCOMES)


@dataclass
class WatchRule(Rule):
    """A watch that does not go on.

    :param kind: ``end`` (it ends as if its time was over), ``cut`` (the connection breaks), ``silent`` (nothing comes
        any more), ``expired`` (410: what it asks for is no longer known), ``garbage`` (a line that is no JSON, then it
        ends).
    :param resource: shell pattern of the plural, for example ``pods``.
    :param after_seconds: when.
    """

    kind: str = CUT
    resource: str = "*"
    after_seconds: float = 0.0

    def __post_init__(self) -> None:
        check_kind(self.kind, (END, CUT, SILENT, EXPIRED, GARBAGE))


@dataclass
class KubernetesSettings(SimulatorSettings):
    """All settings with their defaults: a quick cluster of today without faults.

    :param schedule_seconds: until the scheduler has looked at a pod; ``start_seconds``: from there until its containers
        have started; ``stop_seconds``: how long they take to end, at most the pod's grace period.
    :param backoff_seconds: how long a container waits with ``ErrImagePull`` before it waits with ``ImagePullBackOff``.
    :param token_seconds: until the token controller has filled a token secret.
    :param account_seconds: until a new namespace has its default service account.
    :param namespace_seconds: until the contents of a namespace that was deleted are deleted.
    :param token_secrets_by_itself: each service account gets a token secret, as before Kubernetes 1.24.
    :param openshift: serve projects; ``project_access_seconds``: until who asked for a project may work in it;
        ``project_limit``: most projects of one who asked for them, -1 = any number.
    :param history: events of each resource that a watch can go back.
    :param bookmark_seconds: between two bookmarks of a watch.
    :param watch_seconds: how long a watch goes on that does not say it.
    :param pods: pods that do not simply run; the first rule that matches. ``watches``: the same for watches.
    """

    RULES: ClassVar[Mapping[str, type[Rule]]] = {"errors": ErrorRule, "pods": PodRule, "watches": WatchRule}

    schedule_seconds: Range = (0.0, 0.0)
    start_seconds: Range = (0.05, 0.2)
    stop_seconds: Range = (0.02, 0.1)
    backoff_seconds: Range = (0.2, 0.2)
    token_seconds: Range = (0.0, 0.02)
    account_seconds: Range = (0.0, 0.0)
    namespace_seconds: Range = (0.02, 0.1)
    token_secrets_by_itself: bool = False
    openshift: bool = False
    project_access_seconds: Range = (0.0, 0.05)
    project_limit: int = -1
    history: int = 1000
    bookmark_seconds: float = 60.0
    watch_seconds: Range = (1800.0, 3600.0)
    pods: list[PodRule] = field(default_factory=list)
    watches: list[WatchRule] = field(default_factory=list)
