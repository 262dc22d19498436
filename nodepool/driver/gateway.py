# SPDX-License-Identifier: Apache-2.0
"""The only caller of providers, handlers, adapters and machines: each call is timed and counted, and has a policy.

``gateway.paused_reason(provider)`` calls ``provider.pausedReason()``. Lint forbids direct calls elsewhere
(tests/unit/test_source.py). First the calls that have not returned yet, then how a hook is called, then the policies
and the counts, then all hooks of the contract, with what follows if one raises.

Arguments are passed on as they are. A ``sys.exit()`` of a driver, or of a library of its, is an error like others. What
an exception means says `nodepool.plan.launch`.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import logging
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, ParamSpec, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.fact import Repeats
from nodepool.exceptions import NotFound, ZKConflict, ZKConnectionError
from nodepool.guard import ERRORS, as_exception
from nodepool.model.event import LostInstance
from nodepool.model.node import Node, QuotaInformation
from nodepool.model.reasons import Reason
from nodepool.model.status import HostStatus, LabelStatus, LimitStatus, PauseStatus
from nodepool.plan.launch import Failure, meaning

# `RunningCalls`: calls of drivers that have not returned yet, and which of them are late.
#
# There is hardly a hard bound on calls of drivers. A thread cannot be ended from outside. If a caller went on without
# the answer, the driver would still work in the background with a node or request that may belong to another launcher
# by then. So only `Provider.idle`, ``stop`` and ``join`` are abandoned, after which the provider is not needed any
# more. A call of another hook is logged while it hangs, again and again.

#: After so many seconds a call that is late is logged; then once an hour.
TOLD_SECONDS: Final = (1.0, 10.0, 60.0, 600.0, 3600.0)


class TimeBound(NamedTuple):
    """How long a call of a hook may take.

    :param blocks: may it block?
    :param late_seconds: after these it is late.
    :param text: for the documentation: what follows then.
    """

    blocks: bool
    late_seconds: float
    text: str


#: The thread that calls serves others, too.
AT_ONCE: Final = TimeBound(False, 1.0, "1 s: logged; others wait for the thread")
#: The thread of the pool: it may ask ZooKeeper, or wait for a first answer of the cloud.
OF_THE_POOL: Final = TimeBound(True, 1.0, "1 s: logged; the pool waits")
#: Such a call, but one that the launcher can do without.
GIVEN_UP: Final = TimeBound(True, 10.0, "10 s: abandoned; it has a thread of its own")
#: Such a call, but one that nothing else waits for.
OF_THE_START: Final = TimeBound(True, 60.0, "60 s: logged; it has a thread of its own, and nothing waits for it")
#: The driver asks its cloud, or may do so.
OF_THE_CLOUD: Final = TimeBound(True, 60.0, "60 s: logged; the time limits of the driver end it")
#: The cloud works for long.
LONG: Final = TimeBound(True, 600.0, "600 s: logged; the time limits of the driver end it")


class LateCall(NamedTuple):
    """A call that is late.

    :param about: ids that it was called with, or for.
    :param seconds: since its begin.
    :param thread: name of the thread that is in it.
    :param blocks: may the hook block?
    :param tell: is it time to tell of it (again)?
    """

    provider: str
    hook: str
    about: str
    seconds: float
    thread: str
    blocks: bool
    tell: bool


#: Hook, provider, time of the begin, bound, object, arguments, thread.
_Running = tuple[str, str, float, TimeBound, Any, tuple[Any, ...], int]


class RunningCalls:
    """All of this process. Any thread; each call is one entry, written and removed without a lock."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._running: dict[int, _Running] = {}
        #: Number of a call -> the last of `TOLD_SECONDS` that was reported. For the thread that looks.
        self._told: dict[int, float] = {}

    def begin(self, hook: str, provider: str, begun: float, bound: TimeBound, owner: Any, args: tuple[Any, ...]) -> int:
        """A call begins in this thread; returns its number, for `end`."""
        number = next(self._numbers)
        self._running[number] = (hook, provider, begun, bound, owner, args, threading.get_ident())
        return number

    def end(self, number: int) -> None:
        """It is over."""
        del self._running[number]

    def of_provider(self, provider: str) -> dict[str, float]:
        """Hook -> seconds since the oldest of its calls began. Any thread; does not block."""
        now = monotonic()
        found: dict[str, float] = {}
        for hook, of_provider, begun, *_ in list(self._running.values()):
            if of_provider == provider:
                found[hook] = max(found.get(hook, 0.0), now - begun)
        return found

    def late(self) -> list[LateCall]:
        """All calls that are late, the oldest first. For one thread; does not block."""
        now = monotonic()
        running = {
            number: call for number, call in list(self._running.items()) if now - call[2] >= call[3].late_seconds
        }
        self._told = {number: told for number, told in self._told.items() if number in running}
        names = {thread.ident: thread.name for thread in threading.enumerate()} if running else {}
        found = []
        for number, (hook, provider, begun, bound, owner, args, thread) in sorted(running.items()):
            seconds = now - begun
            step = _step(seconds, bound.late_seconds)
            tell = step > self._told.get(number, -1.0)
            self._told[number] = step
            name = names.get(thread, "")
            found.append(LateCall(provider, hook, about(owner, args), seconds, name, bound.blocks, tell))
        return found


def _step(seconds: float, late_seconds: float) -> float:
    """The last time at which a call was due to be logged."""
    longest = TOLD_SECONDS[-1]
    if seconds >= longest:
        return seconds // longest * longest
    return max([late_seconds, *(step for step in TOLD_SECONDS if step <= seconds)])


def about(owner: Any, args: tuple[Any, ...]) -> str:
    """What a call is about, for the log: ids and nodes in its arguments, the request of a handler, the instance."""
    told = [str(arg) for arg in args if isinstance(arg, str | Node)]
    # Nothing of a driver is called: it hangs, perhaps.
    state = getattr(owner, "__dict__", {})
    request_id = getattr(state.get("request"), "id", None)
    if request_id is not None:
        told.append(f"request {request_id}")
    if state.get("external_id") is not None:
        told.append(f"instance {state['external_id']}")
    return ", ".join(told)


P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("nodepool.driver.gateway")

#: Exceptions with which a driver answers: they are no errors of the call. NotImplementedError is how a driver of the
#: released interface says "I cannot".
ANSWERS: Final = (NotFound, NotImplementedError, ZKConflict)

Contract = Literal["driver", "provider", "handler", "adapter", "machine"]

#: How slow a call was says so long something of the cloud, in seconds.
LATELY_SECONDS: Final = 120.0
#: All of them, in the order of the table.
HOOKS: Final[list[Hook[Any, Any]]] = []

_late = Repeats()
#: What has not returned yet.
RUNNING: Final = RunningCalls()


class Hook(Generic[P, R]):
    """One method of the contract. The subclasses say how it is called.

    :param name: of the method.
    :param policy: what follows if it raises.
    :param bound: how long it may take. Who calls waits longer all the same, see `RunningCalls`.
    """

    contract: Contract

    def __init__(self, name: str, policy: Raises | Otherwise[R], bound: TimeBound = OF_THE_CLOUD) -> None:
        self.name = name
        self.policy = policy
        self.bound = bound
        self._counts: dict[str, CallCount] = {}
        HOOKS.append(self)

    def counts(self) -> list[CallCount]:
        """What was counted so far, by provider."""
        return list(self._counts.values())

    def last(self, provider: str) -> float:
        """How long the call took that ended last, in seconds; 0 = there was none lately."""
        count = self._counts.get(provider)
        # Some questions are rare: the cloud may be quick again long before the next one.
        return 0.0 if count is None or monotonic() - count.ended > LATELY_SECONDS else count.last

    def call(self, provider: str, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Call the method of an object.

        :param provider: name of the provider whose object it is.
        """
        begun = monotonic()
        number = RUNNING.begin(self.name, provider, begun, self.bound, owner, args)
        try:
            result: R = self._ask(owner, args, kwargs)
        except ERRORS as error:
            # It goes to the caller or into the log, by the policy.
            return self._failed(provider, monotonic() - begun, error, owner, args)
        finally:
            RUNNING.end(number)
        seconds = monotonic() - begun
        self._count(provider, seconds)
        if seconds > self.bound.late_seconds:
            self._was_late(provider, seconds)
        return result

    def _ask(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(owner, self.name)(*args, **kwargs)

    def _failed(self, provider: str, seconds: float, error: BaseException, owner: Any, args: tuple[Any, ...]) -> R:
        told = as_exception(error)
        is_answer = isinstance(error, ANSWERS)
        is_of_cloud = not is_answer and meaning(told).kind in (Failure.CLOUD, Failure.UNKNOWN)
        self._count(provider, seconds, int(not is_answer), f"{type(told).__name__}: {told}" if is_of_cloud else "")
        if isinstance(self.policy, Raises):
            if isinstance(told, NotImplementedError) and self.policy.without is not None:
                without: R = self.policy.without()
                return without
            raise told
        if isinstance(told, self.policy.but):
            raise told
        ids = about(owner, args)
        if isinstance(told, NotImplementedError):
            log.debug("Provider %s: the driver has no %s()", provider, self.name)
        elif meaning(told).expected:
            log.warning("Provider %s: %s(%s): %s: %s", provider, self.name, ids, type(told).__name__, told)
        else:
            log.error("Provider %s: error in %s(%s)", provider, self.name, ids, exc_info=told)
        return self.policy.make()

    def _count(self, provider: str, seconds: float, errors: int = 0, away: str = "") -> None:
        count = self._counts.get(provider) or self._counts.setdefault(provider, CallCount(self.name, provider))
        with count.lock:
            count.calls += 1
            count.errors += errors
            count.failed = count.failed + 1 if away else 0
            count.away = away
            count.seconds += seconds
            count.last, count.ended = seconds, monotonic()

    def _was_late(self, provider: str, seconds: float) -> None:
        if self.bound.blocks:
            log.info("Provider %s: %s() returned after %.1f s", provider, self.name, seconds)
        elif _late.worth_saying((self.name, provider)):
            log.warning(
                "Provider %s: %s() took %.1f s and held up others; it must not block", provider, self.name, seconds
            )


def _name(provider: Any) -> str:
    """A driver may have forgotten it: its provider is called all the same."""
    name: str = getattr(provider, "name", "") or type(provider).__name__
    return name


class ProviderHook(Hook[P, R]):
    """Called with the provider."""

    contract: Contract = "provider"

    def __call__(self, provider: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(_name(provider), provider, args, kwargs)

    def begin(self, provider: Any, *args: P.args, **kwargs: P.kwargs) -> threading.Thread | None:
        """Call it in a thread of its own, because a driver may hang there. Does not block then.

        :return: the thread; None = the system has no more threads just now, and the call was made here. A provider that
            is not stopped would work on beside the next one.
        """
        thread = threading.Thread(
            target=self.call,
            args=(_name(provider), provider, args, kwargs),
            name=f"{self.name.capitalize()}-{_name(provider)}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("Provider %s: %s() is called in this thread: %s", _name(provider), self.name, error)
            self(provider, *args, **kwargs)
            return None
        return thread

    def within(self, seconds: float, provider: Any, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Call it, and wait for its end at most so many seconds. False = it hangs (logged)."""
        thread = self.begin(provider, *args, **kwargs)
        if thread is None:
            return True
        thread.join(seconds)
        if thread.is_alive():
            log.error(
                "Provider %s: %s() has not returned after %.0f s. Going on without it",
                *(_name(provider), self.name, seconds),
            )
        return not thread.is_alive()


class HandlerHook(Hook[P, R]):
    """Called with the handler; of a property the value is taken."""

    contract: Contract = "handler"

    def __call__(self, handler: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(handler.provider.name, handler, args, kwargs)

    def _ask(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = getattr(owner, self.name)
        return found(*args, **kwargs) if callable(found) else found


class NamedHook(Hook[P, R]):
    """Called with the name of the provider, for objects that do not know it, and the object."""

    contract: Contract = "adapter"

    def __init__(
        self, name: str, policy: Raises | Otherwise[R], bound: TimeBound = OF_THE_CLOUD, contract: Contract = "adapter"
    ) -> None:
        super().__init__(name, policy, bound)
        self.contract = contract

    def __call__(self, provider_name: str, owner: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(provider_name, owner, args, kwargs)


class ListHook(NamedHook[[], list[Any]]):
    """Its answer may be a generator, which asks the cloud while it is read."""

    def _ask(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return list(getattr(owner, self.name)(*args, **kwargs))


def slow_calls(provider: str, least_seconds: float) -> dict[str, float]:
    """Questions to the cloud of a provider -> seconds that the latest one took, or takes until now. Any thread.

    :param least_seconds: quicker ones are left out.
    """
    running = RUNNING.of_provider(provider)
    found = {}
    for hook in _questions():
        seconds = max(hook.last(provider), running.get(hook.name, 0.0))
        if seconds >= least_seconds:
            found[hook.name] = seconds
    return found


def failing_calls(provider: str, least: int) -> dict[str, str]:
    """Questions to the cloud of a provider that it did not answer so often in a row -> the last error. Any thread."""
    counts = [count for hook in _questions() for count in hook.counts() if count.provider == provider]
    return {count.hook: count.away for count in counts if count.failed >= least}


def _questions() -> list[Hook[Any, Any]]:
    """What asks the cloud."""
    return [hook for hook in HOOKS if hook.bound is OF_THE_CLOUD and hook.contract == "adapter"]


# What happens if a driver raises an exception: the policies of the hooks.


class Otherwise(Generic[R]):
    """A policy: the exception of a hook is logged, and the caller gets a default answer.

    :param text: for the documentation: what follows.
    :param make: the answer.
    :param but: errors that are raised all the same.
    """

    def __init__(self, text: str, make: Callable[[], R], but: tuple[type[Exception], ...] = ()) -> None:
        self.text = text
        self.make = make
        self.but = but


class Raises:
    """A policy: the caller gets the exception.

    :param text: for the documentation: what the caller does then.
    :param lacking: the same when the driver does not have the method: it raises NotImplementedError.
    :param without: the answer then; None = that is raised, too.
    """

    def __init__(self, text: str, lacking: str = "", without: Callable[[], Any] | None = None) -> None:
        self.text = f"{text}; not implemented: {lacking}" if lacking else text
        self.without = without


def no_limits() -> QuotaInformation:
    return QuotaInformation(default=math.inf)


def one_instance() -> QuotaInformation:
    return QuotaInformation(instances=1)


_NOT_TOLD: Final = "logged; the status record is without it"
NO_LIST: Final = Otherwise[Sequence[Any]](_NOT_TOLD, list)
NO_MAPPING: Final = Otherwise[Mapping[str, Any]](_NOT_TOLD, dict)
NOT_PAUSED: Final = Otherwise[Any](_NOT_TOLD, lambda: None)


# Counts of the calls of drivers.


class CallCount:
    """The calls of one hook of one provider. ``lock`` guards the numbers, which go on growing."""

    __slots__ = ("away", "calls", "ended", "errors", "failed", "hook", "last", "lock", "provider", "seconds")

    def __init__(self, hook: str, provider: str) -> None:
        self.hook, self.provider = hook, provider
        self.lock = threading.Lock()
        self.calls = self.errors = 0
        self.seconds = 0.0
        #: Of the call that ended last: how long it took, and its end (monotonic), both in seconds.
        self.last = self.ended = 0.0
        #: Calls in a row that the cloud did not answer, or only with an error of its own, and the last one's text.
        self.failed = 0
        self.away = ""


def call_counts() -> list[CallCount]:
    """The counts of all hooks. Any thread; does not block."""
    return [count for hook in HOOKS for count in hook.counts()]


def _refused() -> concurrent.futures.Future[bool]:
    future: concurrent.futures.Future[bool] = concurrent.futures.Future()
    future.set_result(False)
    return future


_NOTHING: Final = Otherwise[None]("logged", lambda: None)
_DECLINED: Final = Raises("the request is declined (A-16)")
_LAUNCH_FAILED: Final = Raises("the attempt of the launch has failed; the kind of the error says what follows (L-4)")
_ID_STORED_LATER: Final = Otherwise[Any]("logged; the launch stores the id of the instance", lambda: None)
_NODE_FAILED: Final = Raises("the node gets the final state of the table of errors (L-6, L-7)")
_DELETED_LATER: Final = Raises("the node is unlocked, and its deletion tried again later (X-7)")
_UPLOAD_FAILED: Final = Raises("the upload has failed; it is begun again after a back-off (U-6)")
_IMAGE_DELETED_LATER: Final = Raises("the record stays; it is tried again after a back-off (R-7)")
_LAST_ANSWER: Final = "the last answer is used; an error of the cloud counts for the circuit breaker"
_CLOUD_JUDGED: Final = Raises(_LAST_ANSWER)
_CHECK_FAILED: Final = Raises("a failed check (nodepool check)", "no checks", list)

# Driver
get_provider = NamedHook[[Any], Any](
    "getProvider",
    Raises("the start of the provider has failed: it is tried again after a back-off"),
    OF_THE_START,
    contract="driver",
)

# Provider
start_provider = ProviderHook[[Any], None](
    "start", Raises("the provider is stopped, and started again after a back-off (G-9)"), OF_THE_START
)
idle = ProviderHook[[], None]("idle", _NOTHING, GIVEN_UP)
stop_provider = ProviderHook[[], None]("stop", _NOTHING, GIVEN_UP)
join_provider = ProviderHook[[], None]("join", _NOTHING, GIVEN_UP)
label_ready = ProviderHook[[Any], bool](
    "labelReady",
    # Images are looked up in ZooKeeper: no request is declined because the connection was lost over it.
    Otherwise(
        "logged; the label is not ready here; a lost connection: asked again", lambda: False, (ZKConnectionError,)
    ),
    OF_THE_POOL,
)
id_in_advance = ProviderHook[[Any], Any]("idInAdvance", _ID_STORED_LATER, AT_ONCE)
can_resume = ProviderHook[[Any], bool]("canResume", Otherwise("logged; the node is deleted", lambda: False), AT_ONCE)
replacement_for = ProviderHook[[Any], Any]("replacementFor", _DELETED_LATER, AT_ONCE)
start_node_cleanup = ProviderHook[[Any], Any]("startNodeCleanup", _DELETED_LATER, AT_ONCE)
cleanup_node = ProviderHook[[Any], None]("cleanupNode", _DELETED_LATER)
wait_for_node_cleanup = ProviderHook[[Any], None]("waitForNodeCleanup", _DELETED_LATER, LONG)
cleanup_leaked_resources = ProviderHook[[], None](
    "cleanupLeakedResources", Otherwise("logged; the next sweep looks again", lambda: None), LONG
)
get_request_handler = ProviderHook[[Any, Any], Any]("getRequestHandler", _DECLINED, OF_THE_POOL)
upload_image = ProviderHook[..., str]("uploadImage", _UPLOAD_FAILED, LONG)
delete_image = ProviderHook[[str, Any], None]("deleteImage", _IMAGE_DELETED_LATER, LONG)
list_images = ProviderHook[[], list[Any]](
    "listImages", Raises("the records that it is asked for stay; it is asked again later", "nothing is looked for")
)
list_nodes = ProviderHook[[], list[Any]]("listNodes", Raises("the command says so and fails"))
paused_reason = ProviderHook[[], str | None](
    "pausedReason", Otherwise("logged; nothing keeps the provider from working", lambda: None), AT_ONCE
)
wait_reason = ProviderHook[[str, Sequence[str], Mapping[str, int]], Reason | None](
    "waitReason", Otherwise("logged; the request waits for a ready node", lambda: None), AT_ONCE
)
held_labels = ProviderHook[[str], Mapping[str, Reason]](
    "heldLabels", Otherwise("logged; all labels are served", dict), AT_ONCE
)
stop_waiting = ProviderHook[[Collection[str]], None]("stopWaiting", _NOTHING, AT_ONCE)
error_labels = ProviderHook[[], Sequence[str]]("errorLabels", _DECLINED, AT_ONCE)
pool_capacity = ProviderHook[[str], Mapping[str, float]](
    "poolCapacity", Otherwise("logged; pools with the same priority share requests evenly", dict), AT_ONCE
)
# For status records.
limit_status = ProviderHook[[str], Sequence[LimitStatus]]("limitStatus", NO_LIST, AT_ONCE)
label_errors = ProviderHook[[], Mapping[str, LabelStatus]]("labelErrors", NO_MAPPING, AT_ONCE)
pause_status = ProviderHook[[], PauseStatus | None]("pauseStatus", NOT_PAUSED, AT_ONCE)
lost_instances = ProviderHook[[], Sequence[LostInstance]]("lostInstances", NO_LIST, AT_ONCE)
missing_instances = ProviderHook[[], Mapping[str, float]]("missingInstances", NO_MAPPING, AT_ONCE)
other_installations = ProviderHook[[], Mapping[str, int]]("otherInstallations", NO_MAPPING, AT_ONCE)
host_status = ProviderHook[[], Sequence[HostStatus]]("hostStatus", NO_LIST, AT_ONCE)
preflight = ListHook("preflight", _CHECK_FAILED, LONG, contract="provider")
node_deleted_notification = ProviderHook[[Any], None]("nodeDeletedNotification", _NOTHING, AT_ONCE)

quota_needed_by_label = ProviderHook[[str, Any], QuotaInformation](
    "quotaNeededByLabel",
    Raises("the request waits while that is not known, else it is declined", "one instance", one_instance),
    OF_THE_POOL,
)
unmanaged_quota_used = NamedHook[[], QuotaInformation](
    "unmanagedQuotaUsed", Raises("the last limits are used", "nothing is used", QuotaInformation), contract="provider"
)
get_provider_limits = NamedHook[[], QuotaInformation](
    "getProviderLimits", Raises("the last limits are used", "no limits", no_limits), contract="provider"
)

# NodeRequestHandler
alive_thread_count = HandlerHook[[], int](
    "alive_thread_count", Otherwise("logged; counted as one launch", lambda: 1), AT_ONCE
)
images_available = HandlerHook[[], bool]("imagesAvailable", _DECLINED, OF_THE_POOL)
has_provider_quota = HandlerHook[[list[str]], bool]("hasProviderQuota", _DECLINED, OF_THE_POOL)
has_remaining_quota = HandlerHook[[str], bool]("hasRemainingQuota", _DECLINED, OF_THE_POOL)
has_room_now = HandlerHook[[str], bool]("has_room_now", Raises("the request is looked at again"), OF_THE_POOL)
room_ahead = HandlerHook[[], float]("room_ahead", Raises("the request is taken alone"), OF_THE_POOL)
get_declined_reasons = HandlerHook[[], list[str]]("getDeclinedReasons", _DECLINED, OF_THE_POOL)
basic_decline_reasons = HandlerHook[[], list[str]]("basic_decline_reasons", _DECLINED, OF_THE_POOL)
start_reusable_node_check = HandlerHook[[Any], concurrent.futures.Future[bool]](
    "startReusableNodeCheck", Otherwise("logged; the node is refused, and set aside for a while", _refused), OF_THE_POOL
)
check_reusable_node = HandlerHook[[Any], bool]("checkReusableNode", Raises("as startReusableNodeCheck"), OF_THE_POOL)
node_reused_notification = HandlerHook[[Any], None]("nodeReusedNotification", _NOTHING, OF_THE_POOL)
set_node_metadata = HandlerHook[[Any], None]("setNodeMetadata", _DECLINED, OF_THE_POOL)
launch = HandlerHook[[Any], Any]("launch", _NODE_FAILED, OF_THE_POOL)
let_go_of_aborted = HandlerHook[[Any], None]("let_go_of_aborted", _DECLINED, OF_THE_POOL)
resume = HandlerHook[[Any], None]("resume", _NODE_FAILED, OF_THE_POOL)
launches_complete = HandlerHook[[], bool]("launchesComplete", Raises("asked again in the next pass"), OF_THE_POOL)

# Adapter
get_create_state_machine = NamedHook[..., Any]("getCreateStateMachine", _LAUNCH_FAILED, AT_ONCE)
id_in_advance_in_cloud = NamedHook[[Any, Any, Any], Any]("idInAdvance", _ID_STORED_LATER, AT_ONCE)
get_delete_state_machine = NamedHook[[Any, Any], Any]("getDeleteStateMachine", _DELETED_LATER, AT_ONCE)
list_instances = ListHook("listInstances", _CLOUD_JUDGED)
unanswered_creations = ListHook("unansweredCreations", Otherwise[list[Any]]("logged; none counts", list), AT_ONCE)
list_resources = ListHook("listResources", _CLOUD_JUDGED)
suspects_leaks = NamedHook[[], bool](
    "suspectsLeaks", Otherwise("logged; the next sweep looks again", lambda: False), AT_ONCE
)
instance_is_gone = NamedHook[[Any], bool | None](
    "isGone",
    Raises(
        "logged; the node is not handed out, and the cloud is asked again", "as if it cannot be asked", lambda: None
    ),
)
why_lost = NamedHook[[Any], tuple[str, str] | None](
    "whyLost", Otherwise("logged; no other part of Nodepool is notified", lambda: None), AT_ONCE
)
delete_resource = NamedHook[[Any], None]("deleteResource", Raises("logged; the next sweep tries again"))
get_quota_limits = NamedHook[[], QuotaInformation]("getQuotaLimits", Raises(_LAST_ANSWER, "no limits", no_limits))
get_quota_for_label = NamedHook[[Any], QuotaInformation](
    "getQuotaForLabel", Raises(_LAST_ANSWER, "one instance", one_instance)
)
get_azs = ListHook("getAZs", Raises(_LAST_ANSWER, "no zones", list))
label_ready_in_cloud = NamedHook[[Any], bool]("labelReady", Raises(_LAST_ANSWER, "the label is ready", lambda: True))
upload_image_to_cloud = NamedHook[..., str]("uploadImage", _UPLOAD_FAILED, LONG)
delete_image_in_cloud = NamedHook[[Any], None]("deleteImage", _IMAGE_DELETED_LATER, LONG)
list_images_in_cloud = ListHook("listImages", Raises("as for Provider.listImages", "the images among the resources"))
get_console_log = NamedHook[[Any, Any], str | None]("getConsoleLog", Otherwise("logged; there is none", lambda: None))
notify_nodescan_failure = NamedHook[[Any, Any], None]("notifyNodescanFailure", _NOTHING)
preflight_in_cloud = ListHook("preflight", _CHECK_FAILED, LONG)
stop_adapter = NamedHook[[], None]("stop", _NOTHING)

# StateMachine
advance = NamedHook[[], Any](
    "advance", Raises("the attempt of the launch or deletion has failed (L-4, X-7)"), contract="machine"
)
