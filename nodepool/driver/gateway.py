# SPDX-License-Identifier: Apache-2.0
"""The only caller of providers, handlers, adapters and machines: each call is timed and counted, and has a policy.

``gateway.paused_reason(provider)`` calls ``provider.pausedReason()``. This file has all hooks of the contract, and what
follows if one raises; how they are called is in `nodepool.driver.hooks`. Lint forbids direct calls elsewhere
(tests/unit/test_source.py).

Arguments are passed on as they are. A ``sys.exit()`` of a driver, or of a library of its, is an error like others. What
an exception means says `nodepool.plan.launch`.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from nodepool.driver.hooks import (
    AT_ONCE,
    GIVEN_UP,
    LONG,
    NO_LIST,
    NO_MAPPING,
    NOT_PAUSED,
    OF_THE_POOL,
    OF_THE_START,
    HandlerHook,
    ListHook,
    NamedHook,
    Otherwise,
    ProviderHook,
    Raises,
    no_limits,
    one_instance,
)
from nodepool.driver.hooks import HOOKS as HOOKS
from nodepool.driver.hooks import RUNNING as RUNNING
from nodepool.driver.hooks import CallCount as CallCount
from nodepool.driver.hooks import slow_calls as slow_calls
from nodepool.exceptions import ZKConnectionError
from nodepool.model.event import LostInstance
from nodepool.model.quota import QuotaInformation
from nodepool.model.reasons import Reason
from nodepool.model.status import HostStatus, LabelStatus, LimitStatus, PauseStatus


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
id_in_advance: ProviderHook[[Any], Any] = ProviderHook(
    "idInAdvance", Otherwise("logged; the launch stores the id of the instance", lambda: None), AT_ONCE
)
can_resume: ProviderHook[[Any], bool] = ProviderHook(
    "canResume", Otherwise("logged; the node is deleted", lambda: False), AT_ONCE
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
missing_instances: ProviderHook[[], Mapping[str, float]] = ProviderHook("missingInstances", NO_MAPPING, AT_ONCE)
other_installations: ProviderHook[[], Mapping[str, int]] = ProviderHook("otherInstallations", NO_MAPPING, AT_ONCE)
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
alive_thread_count: HandlerHook[[], int] = HandlerHook(
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
resume: HandlerHook[[Any], None] = HandlerHook(
    "resume", Raises("the node gets the final state of the table of errors (L-6, L-7)"), OF_THE_POOL
)
launches_complete: HandlerHook[[], bool] = HandlerHook(
    "launchesComplete", Raises("asked again in the next pass"), OF_THE_POOL
)

# Adapter
get_create_state_machine: NamedHook[..., Any] = NamedHook("getCreateStateMachine", _LAUNCH_FAILED, AT_ONCE)
id_in_advance_in_cloud: NamedHook[[Any, Any, Any], Any] = NamedHook(
    "idInAdvance", Otherwise("logged; the launch stores the id of the instance", lambda: None), AT_ONCE
)
get_delete_state_machine: NamedHook[[Any, Any], Any] = NamedHook("getDeleteStateMachine", _DELETED_LATER, AT_ONCE)
list_instances = ListHook("listInstances", _CLOUD_JUDGED)
unanswered_creations = ListHook("unansweredCreations", Otherwise[list[Any]]("logged; none counts", list), AT_ONCE)
list_resources = ListHook("listResources", _CLOUD_JUDGED)
suspects_leaks: NamedHook[[], bool] = NamedHook(
    "suspectsLeaks", Otherwise("logged; the next sweep looks again", lambda: False), AT_ONCE
)
instance_is_gone: NamedHook[[Any], bool | None] = NamedHook(
    "isGone",
    Raises(
        "logged; the node is not handed out, and the cloud is asked again", "as if it cannot be asked", lambda: None
    ),
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
