# SPDX-License-Identifier: Apache-2.0
"""The only caller of providers, handlers, adapters and machines: each call is timed and counted, and has a policy.

``gateway.paused_reason(provider)`` calls ``provider.pausedReason()``. The table at the end of this file has all hooks
of the contract, and what follows if one raises. Lint forbids direct calls elsewhere (tests/unit/test_gateway_only.py).

Arguments are passed on as they are. A ``sys.exit()`` of a driver, or of a library of its, is an error like others. What
an exception means says `nodepool.plan.failures`.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Generic, Literal, ParamSpec, Protocol, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.call_counts import CallCount as CallCount
from nodepool.driver.framework.call_counts import CountedCalls
from nodepool.driver.framework.policies import (
    NO_LIST,
    NO_MAPPING,
    NOT_PAUSED,
    Otherwise,
    Raises,
    no_limits,
    one_instance,
)
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.framework.running_calls import (
    AT_ONCE,
    GIVEN_UP,
    LONG,
    OF_THE_CLOUD,
    OF_THE_POOL,
    OF_THE_START,
    RunningCalls,
    TimeBound,
    about,
)
from nodepool.exceptions import NotFound, ZKConflict, ZKConnectionError
from nodepool.guard import ERRORS, as_exception
from nodepool.model.lost_instance import LostInstance
from nodepool.model.pool_status import HostStatus, LabelStatus, LimitStatus, PauseStatus
from nodepool.model.quota import QuotaInformation
from nodepool.model.reasons import Reason
from nodepool.plan.failures import meaning

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("nodepool.driver.gateway")

#: Exceptions with which a driver answers: they are no errors of the call. NotImplementedError is how a driver of the
#: released interface says "I cannot".
ANSWERS: Final = (NotFound, NotImplementedError, ZKConflict)

Contract = Literal["driver", "provider", "handler", "adapter", "machine"]

_late = Repeats()
#: What has not returned yet.
RUNNING: Final = RunningCalls()


class Hook(Generic[P, R]):
    """One method of the contract. The subclasses say how it is called.

    :param name: of the method.
    :param policy: what follows if it raises.
    :param bound: how long it may take. Who calls waits longer all the same: `nodepool.driver.framework.running_calls`
        says why, and has what tells of the call meanwhile.
    """

    contract: Contract

    def __init__(self, name: str, policy: Raises | Otherwise[R], bound: TimeBound = OF_THE_CLOUD) -> None:
        self.name = name
        self.policy = policy
        self.bound = bound
        self._counts: dict[str, CountedCalls] = {}
        HOOKS.append(self)

    def counts(self) -> list[CallCount]:
        """What was counted so far."""
        return [
            CallCount(self.name, provider, count.calls, count.errors, count.seconds)
            for provider, count in list(self._counts.items())
        ]

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
        count = self._counts.get(provider) or self._counts.setdefault(provider, CountedCalls())
        with count.lock:
            count.calls += 1
            count.seconds += seconds
        if seconds > self.bound.late_seconds:
            self._was_late(provider, seconds)
        return result

    def _ask(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(owner, self.name)(*args, **kwargs)

    def _failed(self, provider: str, seconds: float, error: BaseException, owner: Any, args: tuple[Any, ...]) -> R:
        count = self._counts.setdefault(provider, CountedCalls())
        with count.lock:
            count.calls += 1
            count.seconds += seconds
            if not isinstance(error, ANSWERS):
                count.errors += 1
        told = as_exception(error)
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

    def _was_late(self, provider: str, seconds: float) -> None:
        if self.bound.blocks:
            log.info("Provider %s: %s() returned after %.1f s", provider, self.name, seconds)
        elif _late.worth_saying((self.name, provider)):
            log.warning(
                "Provider %s: %s() took %.1f s and held up others; it must not block", provider, self.name, seconds
            )


class Serving(Protocol):
    """The handler of a request."""

    provider: Any


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
    """Called with the handler."""

    contract: Contract = "handler"

    def __call__(self, handler: Serving, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(handler.provider.name, handler, args, kwargs)


class HandlerProperty(Hook[[], R]):
    """A property of the handler."""

    contract: Contract = "handler"

    def __call__(self, handler: Serving) -> R:
        return self.call(handler.provider.name, handler, (), {})

    def _ask(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(owner, self.name)


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
_DELETED_LATER: Final = Raises("the node is unlocked, and its deletion tried again later (X-7)")
_UPLOAD_FAILED: Final = Raises("the upload has failed; it is begun again after a back-off (U-6)")
_IMAGE_DELETED_LATER: Final = Raises("the record stays; it is tried again after a back-off (R-7)")
_LAST_ANSWER: Final = "the last answer is used; an error of the cloud counts for the circuit breaker"
_CLOUD_JUDGED: Final = Raises(_LAST_ANSWER)
_CHECK_FAILED: Final = Raises("a failed check (nodepool check)", "no checks", list)

#: All hooks, in the order of the table.
HOOKS: list[Hook[Any, Any]] = []

# Driver
get_provider: NamedHook[[Any], Any] = NamedHook(
    "getProvider",
    Raises("the start of the provider has failed: it is tried again after a back-off"),
    OF_THE_START,
    contract="driver",
)

# Provider
start_provider: ProviderHook[[Any], None] = ProviderHook(
    "start", Raises("the provider is stopped, and started again after a back-off (G-9)"), OF_THE_START
)
idle: ProviderHook[[], None] = ProviderHook("idle", _NOTHING, GIVEN_UP)
stop_provider: ProviderHook[[], None] = ProviderHook("stop", _NOTHING, GIVEN_UP)
join_provider: ProviderHook[[], None] = ProviderHook("join", _NOTHING, GIVEN_UP)
label_ready: ProviderHook[[Any], bool] = ProviderHook(
    "labelReady",
    # Images are looked up in ZooKeeper: no request is declined because the connection was lost over it.
    Otherwise(
        "logged; the label is not ready here; a lost connection: asked again", lambda: False, (ZKConnectionError,)
    ),
    OF_THE_POOL,
)
replacement_for: ProviderHook[[Any], Any] = ProviderHook("replacementFor", _DELETED_LATER, AT_ONCE)
start_node_cleanup: ProviderHook[[Any], Any] = ProviderHook("startNodeCleanup", _DELETED_LATER, AT_ONCE)
cleanup_node: ProviderHook[[Any], None] = ProviderHook("cleanupNode", _DELETED_LATER)
wait_for_node_cleanup: ProviderHook[[Any], None] = ProviderHook("waitForNodeCleanup", _DELETED_LATER, LONG)
cleanup_leaked_resources: ProviderHook[[], None] = ProviderHook(
    "cleanupLeakedResources", Otherwise("logged; the next sweep looks again", lambda: None), LONG
)
get_request_handler: ProviderHook[[Any, Any], Any] = ProviderHook("getRequestHandler", _DECLINED, OF_THE_POOL)
upload_image: ProviderHook[..., str] = ProviderHook("uploadImage", _UPLOAD_FAILED, LONG)
delete_image: ProviderHook[[str, Any], None] = ProviderHook("deleteImage", _IMAGE_DELETED_LATER, LONG)
list_images: ProviderHook[[], list[Any]] = ProviderHook(
    "listImages", Raises("the records that it is asked for stay; it is asked again later", "nothing is looked for")
)
list_nodes: ProviderHook[[], list[Any]] = ProviderHook("listNodes", Raises("the command says so and fails"))
paused_reason: ProviderHook[[], str | None] = ProviderHook(
    "pausedReason", Otherwise("logged; nothing keeps the provider from working", lambda: None), AT_ONCE
)
wait_reason: ProviderHook[[str, Sequence[str], Mapping[str, int]], Reason | None] = ProviderHook(
    "waitReason", Otherwise("logged; the request waits for a ready node", lambda: None), AT_ONCE
)
held_labels: ProviderHook[[str], Mapping[str, Reason]] = ProviderHook(
    "heldLabels", Otherwise("logged; all labels are served", dict), AT_ONCE
)
stop_waiting: ProviderHook[[Collection[str]], None] = ProviderHook("stopWaiting", _NOTHING, AT_ONCE)
error_labels: ProviderHook[[], Sequence[str]] = ProviderHook("errorLabels", _DECLINED, AT_ONCE)
# For status records.
limit_status: ProviderHook[[str], Sequence[LimitStatus]] = ProviderHook("limitStatus", NO_LIST, AT_ONCE)
label_errors: ProviderHook[[], Mapping[str, LabelStatus]] = ProviderHook("labelErrors", NO_MAPPING, AT_ONCE)
pause_status: ProviderHook[[], PauseStatus | None] = ProviderHook("pauseStatus", NOT_PAUSED, AT_ONCE)
lost_instances: ProviderHook[[], Sequence[LostInstance]] = ProviderHook("lostInstances", NO_LIST, AT_ONCE)
host_status: ProviderHook[[], Sequence[HostStatus]] = ProviderHook("hostStatus", NO_LIST, AT_ONCE)
preflight = ListHook("preflight", _CHECK_FAILED, LONG, contract="provider")
node_deleted_notification: ProviderHook[[Any], None] = ProviderHook("nodeDeletedNotification", _NOTHING, AT_ONCE)

quota_needed_by_label: ProviderHook[[str, Any], QuotaInformation] = ProviderHook(
    "quotaNeededByLabel",
    Raises("the request waits while that is not known, else it is declined", "one instance", one_instance),
    OF_THE_POOL,
)
unmanaged_quota_used: NamedHook[[], QuotaInformation] = NamedHook(
    "unmanagedQuotaUsed", Raises("the last limits are used", "nothing is used", QuotaInformation), contract="provider"
)
get_provider_limits: NamedHook[[], QuotaInformation] = NamedHook(
    "getProviderLimits", Raises("the last limits are used", "no limits", no_limits), contract="provider"
)

# NodeRequestHandler
alive_thread_count: HandlerProperty[int] = HandlerProperty(
    "alive_thread_count", Otherwise("logged; counted as one launch", lambda: 1), AT_ONCE
)
images_available: HandlerHook[[], bool] = HandlerHook("imagesAvailable", _DECLINED, OF_THE_POOL)
has_provider_quota: HandlerHook[[list[str]], bool] = HandlerHook("hasProviderQuota", _DECLINED, OF_THE_POOL)
has_remaining_quota: HandlerHook[[str], bool] = HandlerHook("hasRemainingQuota", _DECLINED, OF_THE_POOL)
has_room_now: HandlerHook[[str], bool] = HandlerHook(
    "has_room_now", Raises("the request is looked at again"), OF_THE_POOL
)
room_ahead: HandlerHook[[], float] = HandlerHook("room_ahead", Raises("the request is taken alone"), OF_THE_POOL)
get_declined_reasons: HandlerHook[[], list[str]] = HandlerHook("getDeclinedReasons", _DECLINED, OF_THE_POOL)
basic_decline_reasons: HandlerHook[[], list[str]] = HandlerHook("basic_decline_reasons", _DECLINED, OF_THE_POOL)
start_reusable_node_check: HandlerHook[[Any], concurrent.futures.Future[bool]] = HandlerHook(
    "startReusableNodeCheck", Otherwise("logged; the node is refused, and set aside for a while", _refused), OF_THE_POOL
)
check_reusable_node: HandlerHook[[Any], bool] = HandlerHook(
    "checkReusableNode", Raises("as startReusableNodeCheck"), OF_THE_POOL
)
node_reused_notification: HandlerHook[[Any], None] = HandlerHook("nodeReusedNotification", _NOTHING, OF_THE_POOL)
set_node_metadata: HandlerHook[[Any], None] = HandlerHook("setNodeMetadata", _DECLINED, OF_THE_POOL)
launch: HandlerHook[[Any], Any] = HandlerHook(
    "launch", Raises("the node gets the final state of the table of errors (L-6, L-7)"), OF_THE_POOL
)
let_go_of_aborted: HandlerHook[[Any], None] = HandlerHook("let_go_of_aborted", _DECLINED, OF_THE_POOL)
launches_complete: HandlerHook[[], bool] = HandlerHook(
    "launchesComplete", Raises("asked again in the next pass"), OF_THE_POOL
)

# Adapter
get_create_state_machine: NamedHook[..., Any] = NamedHook("getCreateStateMachine", _LAUNCH_FAILED, AT_ONCE)
get_delete_state_machine: NamedHook[[Any, Any], Any] = NamedHook("getDeleteStateMachine", _DELETED_LATER, AT_ONCE)
list_instances = ListHook("listInstances", _CLOUD_JUDGED)
unanswered_creations = ListHook("unansweredCreations", Otherwise[list[Any]]("logged; none counts", list), AT_ONCE)
list_resources = ListHook("listResources", _CLOUD_JUDGED)
suspects_leaks: NamedHook[[], bool] = NamedHook(
    "suspectsLeaks", Otherwise("logged; the next sweep looks again", lambda: False), AT_ONCE
)
why_lost: NamedHook[[Any], tuple[str, str] | None] = NamedHook(
    "whyLost", Otherwise("logged; nobody is told", lambda: None), AT_ONCE
)
delete_resource: NamedHook[[Any], None] = NamedHook("deleteResource", Raises("logged; the next sweep tries again"))
get_quota_limits: NamedHook[[], QuotaInformation] = NamedHook(
    "getQuotaLimits", Raises(_LAST_ANSWER, "no limits", no_limits)
)
get_quota_for_label: NamedHook[[Any], QuotaInformation] = NamedHook(
    "getQuotaForLabel", Raises(_LAST_ANSWER, "one instance", one_instance)
)
get_azs = ListHook("getAZs", Raises(_LAST_ANSWER, "no zones", list))
label_ready_in_cloud: NamedHook[[Any], bool] = NamedHook(
    "labelReady", Raises(_LAST_ANSWER, "the label is ready", lambda: True)
)
upload_image_to_cloud: NamedHook[..., str] = NamedHook("uploadImage", _UPLOAD_FAILED, LONG)
delete_image_in_cloud: NamedHook[[Any], None] = NamedHook("deleteImage", _IMAGE_DELETED_LATER, LONG)
list_images_in_cloud = ListHook("listImages", Raises("as for Provider.listImages", "the images among the resources"))
get_console_log: NamedHook[[Any, Any], str | None] = NamedHook(
    "getConsoleLog", Otherwise("logged; there is none", lambda: None)
)
notify_nodescan_failure: NamedHook[[Any, Any], None] = NamedHook("notifyNodescanFailure", _NOTHING)
preflight_in_cloud = ListHook("preflight", _CHECK_FAILED, LONG)
stop_adapter: NamedHook[[], None] = NamedHook("stop", _NOTHING)

# StateMachine
advance: NamedHook[[], Any] = NamedHook(
    "advance", Raises("the attempt of the launch or deletion has failed (L-4, X-7)"), contract="machine"
)
