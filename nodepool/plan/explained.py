# SPDX-License-Identifier: Apache-2.0
"""What `nodepool.plan.explain` answers: one class for each kind of subject, and its JSON form.

Times are seconds since the epoch; ages and durations end in ``_seconds``. Codes are values of `ReasonCode`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, ClassVar, Final

from nodepool.plan.pool_summary import PoolSummary
from nodepool.quick_dataclass import dataclass

#: What a pool does about a request, the most promising first.
SERVES: Final = "serves"
WAITS: Final = "waits"
#: It launches nothing now, whoever asks.
ABSENT: Final = "absent"
#: It leaves the request to another pool.
LEAVES: Final = "leaves"
DECLINED: Final = "declined"
VERDICTS: Final = (SERVES, WAITS, ABSENT, LEAVES, DECLINED)


@dataclass(frozen=True)
class PoolVerdict:
    """What the pool of a provider does about a request; of its launchers, the one that does most.

    :param pool: ``<provider>/<pool>``. ``launchers``: hosts of those that say so.
    :param verdict: one of `VERDICTS`.
    :param since: when it began to be so for this request, never before it was submitted; None = not known.
    :param ahead: requests that come first in this pool.
    """

    pool: str
    launchers: Sequence[str]
    verdict: str
    code: str
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    since: float | None = None
    ahead: int = 0


@dataclass(frozen=True)
class Moment:
    """What happened, and when."""

    at: float
    what: str
    code: str | None = None
    text: str = ""


@dataclass(frozen=True)
class Explained:
    """The answer about one subject.

    :param text: the whole of it in a sentence.
    :param remedies: what an operator can do, or has to know.
    """

    kind: ClassVar[str] = ""

    id: str
    state: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class ExplainedRequest(Explained):
    """Of a request.

    :param code: of the pool that is nearest to serving it.
    :param provider: the only one that may serve it; None = any.
    :param ahead: requests that come first in that pool.
    """

    kind: ClassVar[str] = "request"

    labels: Sequence[str] = ()
    provider: str | None = None
    tenant: str | None = None
    job: str | None = None
    pipeline: str | None = None
    requestor: str | None = None
    event_id: str | None = None
    age_seconds: float | None = None
    code: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    ahead: int = 0
    nodes: Sequence[str] = ()
    pools: Sequence[PoolVerdict] = ()
    history: Sequence[Moment] = ()
    remedies: Sequence[str] = ()


@dataclass(frozen=True)
class ExplainedNode(Explained):
    """Of a node.

    :param state_seconds: for how long it is in its state.
    :param request: for which it is, or that uses it.
    :param locked: does somebody hold its lock?
    :param held_by: who keeps it, of a node on hold that an operator holds.
    :param held_until: when launchers delete it, in seconds since the epoch, of a node on hold; None = never.
    :param hold_reason: why it is kept, of a node on hold.
    """

    kind: ClassVar[str] = "node"

    labels: Sequence[str] = ()
    provider: str | None = None
    pool: str | None = None
    launcher: str | None = None
    external_id: Any = None
    age_seconds: float | None = None
    state_seconds: float | None = None
    request: str | None = None
    tenant: str | None = None
    job: str | None = None
    event_id: str | None = None
    locked: bool = False
    held_by: str | None = None
    held_until: float | None = None
    hold_reason: str | None = None
    history: Sequence[Moment] = ()
    remedies: Sequence[str] = ()


@dataclass(frozen=True)
class LabelInPool:
    """A label in the pool of one provider.

    :param code: and ``text``: why it is not served now; None = it is.
    :param nodes: state -> nodes. ``free``: ready ones that nobody has.
    """

    pool: str
    launchers: Sequence[str]
    code: str | None = None
    text: str | None = None
    since: float | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)
    free: int = 0


@dataclass(frozen=True)
class WaitingGroup:
    """Requests that wait in a pool for the same."""

    pool: str
    count: int
    code: str
    text: str
    labels: Sequence[str] = ()
    tenant: str | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    oldest: float | None = None


@dataclass(frozen=True)
class ExplainedLabel(Explained):
    """Of a label.

    :param requests: open ones that want it. ``oldest``: when the one that waits longest was submitted.
    """

    kind: ClassVar[str] = "label"

    requests: int = 0
    oldest: float | None = None
    pools: Sequence[LabelInPool] = ()
    waiting: Sequence[WaitingGroup] = ()
    remedies: Sequence[str] = ()


@dataclass(frozen=True)
class ExplainedProvider(Explained):
    """Of a provider.

    :param nodes: state -> nodes.
    :param pools: what launchers report of them. ``silent``: launchers that report none.
    """

    kind: ClassVar[str] = "provider"

    nodes: Mapping[str, int] = field(default_factory=dict)
    pools: Sequence[PoolSummary] = ()
    silent: Sequence[str] = ()
    waiting: Sequence[WaitingGroup] = ()
    maintenance: Sequence[str] = ()
    history: Sequence[Moment] = ()
    remedies: Sequence[str] = ()


@dataclass(frozen=True)
class ExplainedPool(ExplainedProvider):
    """Of one pool of a provider."""

    kind: ClassVar[str] = "pool"
