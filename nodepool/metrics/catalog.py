# SPDX-License-Identifier: Apache-2.0
"""Every metric, declared once: its Prometheus name, its labels, and its statsd names (reference/metrics).

First the rule for texts of users in statsd names, then the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from nodepool.metrics.registry import Metric, MetricKind

# The rule for text that comes from users, as a part of a statsd name (reference/metrics).

# Requestors and tenants are named freely by clients: what has a meaning in a name or in the protocol goes.
_NORMALISED = str.maketrans(dict.fromkeys(".:|\r\n", "_"))
# Other names are kept as they are, except for what would end a line early and make a wrong metric of the rest:
# labels and providers of nodes come from ZooKeeper, where anybody may have written them.
_PLAIN = str.maketrans(dict.fromkeys("|\r\n", "_"))


def normalise(text: str) -> str:
    """Text of a requestor or tenant as one part of a name: ``.`` and ``:`` become ``_``."""
    return text.translate(_NORMALISED)


def plain(text: str) -> str:
    """Any other text as a part of a name: unchanged, dots included."""
    return text.translate(_PLAIN)


#: For how long it takes until a machine can be used, in seconds.
LAUNCH_BUCKETS: Final = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 1800.0)


def _as(form: str, *rules: Callable[[str], str]) -> Callable[..., Sequence[str]]:
    """One statsd name: ``form`` with the values of the labels, each by its rule for text."""

    def names(*values: str) -> Sequence[str]:
        return (form.format(*(rule(value) for rule, value in zip(rules, values, strict=True))),)

    return names


def _launch_names(result: str, provider: str, az: str, requestor: str) -> Sequence[str]:
    names = [f"nodepool.launch.{result}", f"nodepool.launch.provider.{plain(provider)}.{result}"]
    if az:
        names.append(f"nodepool.launch.provider.{plain(provider)}.{plain(az)}.{result}")
    if requestor:
        names.append(f"nodepool.launch.requestor.{normalise(requestor)}.{result}")
    return names


NODES: Final = Metric(
    "nodepool_nodes",
    MetricKind.GAUGE,
    ("state",),
    "Nodes in each state.",
    _as("nodepool.nodes.{}", str),
)
NODES_BY_LABEL: Final = Metric(
    "nodepool_nodes_by_label",
    MetricKind.GAUGE,
    ("label", "state"),
    "Nodes by label and state. A node counts once for each of its labels.",
    _as("nodepool.label.{}.nodes.{}", plain, str),
)
NODES_BY_PROVIDER: Final = Metric(
    "nodepool_nodes_by_provider",
    MetricKind.GAUGE,
    ("provider", "state"),
    "Nodes by provider and state.",
    _as("nodepool.provider.{}.nodes.{}", plain, str),
)
ADDRESSABLE_REQUESTS: Final = Metric(
    "nodepool_addressable_requests",
    MetricKind.GAUGE,
    ("provider", "pool"),
    "Requests, in any state, that the pool could serve.",
    _as("nodepool.provider.{}.pool.{}.addressable_requests", plain, plain),
)
MAX_SERVERS: Final = Metric(
    "nodepool_provider_max_servers",
    MetricKind.GAUGE,
    ("provider",),
    "Sum of max-servers of the pools of a provider; infinite when a pool is not limited.",
    _as("nodepool.provider.{}.max_servers", plain),
)
TENANT_LIMIT: Final = Metric(
    "nodepool_tenant_limit",
    MetricKind.GAUGE,
    ("tenant", "limit"),
    "Limits of tenants; cores, instances and ram always, infinite when they are not limited.",
    _as("nodepool.tenant_limits.{}.{}", normalise, normalise),
)
LAUNCH: Final = Metric(
    "nodepool_launch",
    MetricKind.TIMER,
    ("result", "provider", "az", "requestor"),
    "Ends of launches, and how long they took from the first attempt on. The result is ready, or error and a reason.",
    _launch_names,
    buckets=LAUNCH_BUCKETS,
)
REQUEST_WAIT: Final = Metric(
    "nodepool_request_wait_seconds",
    MetricKind.TIMER,
    ("label", "outcome"),
    "How long requests took from submission until they were fulfilled or failed, once for each of their labels. "
    "Requests of min-ready are left out.",
    buckets=(0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0),
)
BOOT: Final = Metric(
    "nodepool_boot_seconds",
    MetricKind.TIMER,
    ("provider",),
    "From the start of an attempt to launch a node until the cloud reported that the instance runs.",
    buckets=LAUNCH_BUCKETS,
)
SCAN: Final = Metric(
    "nodepool_scan_seconds",
    MetricKind.TIMER,
    ("provider",),
    "From then until the instance could be logged in to.",
    buckets=LAUNCH_BUCKETS,
)
RELOADS: Final = Metric(
    "nodepool_config_reloads",
    MetricKind.COUNTER,
    ("outcome",),
    "Changed configurations: applied, refused as a whole or in part, or failed, which is tried again.",
)
SPANS: Final = Metric(
    "nodepool_trace_spans",
    MetricKind.COUNTER,
    ("outcome",),
    "Spans for the collector of traces: sent, or dropped because it does not take them.",
)
LEAKED: Final = Metric(
    "nodepool_provider_leaked",
    MetricKind.COUNTER,
    ("provider", "resource"),
    "Leaked resources that were deleted.",
    _as("nodepool.provider.{}.leaked.{}", plain, plain),
)
INSTANCES_ENDED: Final = Metric(
    "nodepool_provider_instances_ended",
    MetricKind.COUNTER,
    ("provider", "reason"),
    "Instances of nodes that ended, by the code that the cloud gives as the reason; NotFound = it gives none.",
)
CIRCUIT_OPEN: Final = Metric(
    "nodepool_provider_circuit_open",
    MetricKind.GAUGE,
    ("launcher", "provider"),
    "1 while this launcher launches nothing in a provider because its cloud keeps failing, else 0.",
    _as("nodepool.launcher.{}.provider.{}.circuit_open", str, plain),
)
CIRCUIT_OPENED: Final = Metric(
    "nodepool_provider_circuit_opened",
    MetricKind.COUNTER,
    ("provider",),
    "How often the circuit breaker of a provider opened.",
    _as("nodepool.provider.{}.circuit_opened", plain),
)
ZK_QUEUE: Final = Metric(
    "nodepool_launcher_zk",
    MetricKind.GAUGE,
    ("launcher", "queue"),
    "What waits inside the launcher: calls to ZooKeeper, changes that are being read.",
    _as("nodepool.launcher.{}.zk.{}", str, str),
)
DRIVER_CALLS: Final = Metric(
    "nodepool_driver_calls",
    MetricKind.COUNTER,
    ("hook", "provider"),
    "Calls of a method of a driver.",
)
DRIVER_CALL_ERRORS: Final = Metric(
    "nodepool_driver_call_errors",
    MetricKind.COUNTER,
    ("hook", "provider"),
    "Such calls that ended with an error.",
)
DRIVER_CALL_SECONDS: Final = Metric(
    "nodepool_driver_call_seconds",
    MetricKind.COUNTER,
    ("hook", "provider"),
    "How long such calls took, all together.",
)
LATE_CALLS: Final = Metric(
    "nodepool_provider_late_calls",
    MetricKind.GAUGE,
    ("launcher", "provider", "hook"),
    "Calls of a method of a driver that have not returned and should have. The log names them.",
    _as("nodepool.launcher.{}.provider.{}.late_calls.{}", str, plain, str),
)
IMAGE_UPDATE: Final = Metric(
    "nodepool_image_update",
    MetricKind.TIMER,
    ("image", "provider"),
    "Uploads of images that became ready, and how long they took, the post-upload hook included.",
    _as("nodepool.image_update.{}.{}", plain, plain),
    buckets=(10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0),
)
UPLOAD_STATE: Final = Metric(
    "nodepool_builder_upload_state",
    MetricKind.GAUGE,
    ("builder", "image", "provider"),
    "What a builder does with an image for a provider: 0 nothing, 2 uploads it, 3 uploads are paused.",
    _as("nodepool.builder.{}.image.{}.provider.{}.upload.state", plain, plain, plain),
)
CURRENT_UPLOADS: Final = Metric(
    "nodepool_builder_current_uploads",
    MetricKind.GAUGE,
    ("builder",),
    "Uploads that run now.",
    _as("nodepool.builder.{}.current_uploads", plain),
)
UPLOAD_WORKERS: Final = Metric(
    "nodepool_builder_upload_workers",
    MetricKind.GAUGE,
    ("builder",),
    "Threads that upload.",
    _as("nodepool.builder.{}.upload_workers", plain),
)
UPLOAD_PROGRESS: Final = Metric(
    "nodepool_builder_upload_progress",
    MetricKind.GAUGE,
    ("builder", "image", "provider"),
    "How far a running upload is, in percent.",
    _as("nodepool.builder.{}.image.{}.provider.{}.upload.progress", plain, plain, plain),
)
UPLOAD_SPEED: Final = Metric(
    "nodepool_builder_upload_bytes_per_second",
    MetricKind.GAUGE,
    ("builder", "image", "provider"),
    "How fast a running upload is.",
    _as("nodepool.builder.{}.image.{}.provider.{}.upload.bytes_per_second", plain, plain, plain),
)
UNKNOWN_IMAGES: Final = Metric(
    "nodepool_provider_unknown_images",
    MetricKind.GAUGE,
    ("provider",),
    "Images in the cloud that are marked as ours and have no record; nodepool alien-image-list lists them.",
    _as("nodepool.provider.{}.unknown_images", plain),
)
BUILD_RESULT: Final = Metric(
    "nodepool_dib_image_build_result_code",
    MetricKind.GAUGE,
    ("image",),
    "Exit code of the last build of an image; 0 = it succeeded; 1 also if it was ended or could not begin.",
    _as("nodepool.dib_image_build.{}.status.rc", plain),
)
BUILD_DURATION: Final = Metric(
    "nodepool_dib_image_build_duration",
    MetricKind.TIMER,
    ("image",),
    "Ends of builds of an image, and how long they took.",
    _as("nodepool.dib_image_build.{}.status.duration", plain),
    buckets=(60.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0),
    statsd_counts=False,
)
BUILD_STEP: Final = Metric(
    "nodepool_dib_image_build_step_duration",
    MetricKind.TIMER,
    ("image", "step"),
    "Steps of builds that have ended, and how long they took.",
    _as("nodepool.dib_image_build.{}.step.{}.duration", plain, plain),
    buckets=(10.0, 60.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0),
    statsd_counts=False,
)
LAST_BUILD: Final = Metric(
    "nodepool_dib_image_build_last_build",
    MetricKind.GAUGE,
    ("image",),
    "When the last build of an image ended, in seconds since the epoch.",
    _as("nodepool.dib_image_build.{}.status.last_build", plain),
)
BUILD_SIZE: Final = Metric(
    "nodepool_dib_image_build_size",
    MetricKind.GAUGE,
    ("image", "ext"),
    "Bytes on the disk that the last ready build of an image takes in a format.",
    _as("nodepool.dib_image_build.{}.{}.size", plain, plain),
)
BUILD_REQUESTS: Final = Metric(
    "nodepool_image_build_requests",
    MetricKind.GAUGE,
    (),
    "Requests for builds that are not served yet.",
    _as("nodepool.image_build_requests"),
)
BUILD_REQUESTS_OF_IMAGE: Final = Metric(
    "nodepool_image_build_requests_by_image",
    MetricKind.GAUGE,
    ("image",),
    "The same for one image: 0 or 1.",
    _as("nodepool.image.{}.image_build_requests", plain),
)
BUILD_STATE: Final = Metric(
    "nodepool_builder_build_state",
    MetricKind.GAUGE,
    ("builder", "image"),
    "What a builder does with an image: 0 nothing, 1 builds it, 3 builds are paused.",
    _as("nodepool.builder.{}.image.{}.build.state", plain, plain),
)
BUILD_SECONDS: Final = Metric(
    "nodepool_builder_build_seconds",
    MetricKind.GAUGE,
    ("builder", "image"),
    "How long a build has been running.",
    _as("nodepool.builder.{}.image.{}.build.seconds", plain, plain),
)
BUILD_ESTIMATE: Final = Metric(
    "nodepool_builder_build_estimate_seconds",
    MetricKind.GAUGE,
    ("builder", "image"),
    "How long a running build may take: as long as the last one took.",
    _as("nodepool.builder.{}.image.{}.build.estimate", plain, plain),
)
CURRENT_BUILDS: Final = Metric(
    "nodepool_builder_current_builds",
    MetricKind.GAUGE,
    ("builder",),
    "Builds that run now.",
    _as("nodepool.builder.{}.current_builds", plain),
)
BUILD_WORKERS: Final = Metric(
    "nodepool_builder_build_workers",
    MetricKind.GAUGE,
    ("builder",),
    "Threads that build.",
    _as("nodepool.builder.{}.build_workers", plain),
)

#: All of the above, in the order of the documentation.
ALL: Final = (
    NODES,
    NODES_BY_LABEL,
    NODES_BY_PROVIDER,
    ADDRESSABLE_REQUESTS,
    MAX_SERVERS,
    TENANT_LIMIT,
    LAUNCH,
    REQUEST_WAIT,
    BOOT,
    SCAN,
    RELOADS,
    SPANS,
    LEAKED,
    INSTANCES_ENDED,
    CIRCUIT_OPEN,
    CIRCUIT_OPENED,
    ZK_QUEUE,
    DRIVER_CALLS,
    DRIVER_CALL_ERRORS,
    DRIVER_CALL_SECONDS,
    LATE_CALLS,
    IMAGE_UPDATE,
    UPLOAD_STATE,
    CURRENT_UPLOADS,
    UPLOAD_WORKERS,
    UPLOAD_PROGRESS,
    UPLOAD_SPEED,
    UNKNOWN_IMAGES,
    BUILD_RESULT,
    BUILD_DURATION,
    BUILD_STEP,
    LAST_BUILD,
    BUILD_SIZE,
    BUILD_REQUESTS,
    BUILD_REQUESTS_OF_IMAGE,
    BUILD_STATE,
    BUILD_SECONDS,
    BUILD_ESTIMATE,
    CURRENT_BUILDS,
    BUILD_WORKERS,
)


# Metrics that are computed when Prometheus asks, from what the web pages show, too (reference/metrics 9).


def _gauge(name: str, labels: str, help_text: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, tuple(labels.split()), help_text)


BUILD_INFO: Final = _gauge(
    "nodepool_build_info",
    "version kind",
    "1, with the release and the kind of the daemon: launcher, builder or web.",
)
CONNECTED: Final = _gauge("nodepool_zookeeper_connected", "", "1 while there is a connection to ZooKeeper, else 0.")
COMPLETE: Final = _gauge(
    "nodepool_caches_complete",
    "",
    "1 if the caches have all that ZooKeeper has, else 0: then other values may be old.",
)
LOOP_AGE: Final = _gauge("nodepool_main_loop_age_seconds", "", "How long ago the main loop turned.")
THREADS: Final = _gauge(
    "nodepool_threads",
    "thread",
    "Threads that are alive, by name; what tells threads of one kind apart is left out.",
)
REQUESTS: Final = _gauge("nodepool_requests", "state", "Requests in each state.")
WAITING: Final = _gauge(
    "nodepool_requests_waiting",
    "label code",
    "Requests that no pool has begun to serve, by label and by what they wait for. A request counts once for "
    "each of its labels. Requests of min-ready are left out.",
)
OLDEST: Final = _gauge(
    "nodepool_requests_oldest_seconds",
    "label",
    "How long ago the oldest request that is not answered was submitted, by label. Requests of min-ready are left out.",
)
LIMIT: Final = _gauge(
    "nodepool_limit",
    "scope provider pool tenant resource",
    "Limits of pools, providers, clouds and tenants; ram in MiB. One that is not limited is left out.",
)
LIMIT_USED: Final = _gauge("nodepool_limit_used", "scope provider pool tenant resource", "What our nodes use of them.")
LIMIT_OTHERS: Final = _gauge(
    "nodepool_limit_used_by_others",
    "scope provider pool tenant resource",
    "What others use of the same quota, as far as it is known.",
)
POOL_STATE: Final = _gauge(
    "nodepool_pool_state",
    "provider pool state code",
    "Launchers in which the pool is in a state, and why.",
)
POOL_LAUNCHES: Final = _gauge(
    "nodepool_pool_launches_running",
    "provider pool",
    "Launches that run now, in all launchers.",
)
POOL_SLOW: Final = _gauge(
    "nodepool_pool_launches_slow",
    "provider pool",
    "Launches that take much longer than is usual, in all launchers.",
)
LABEL_BROKEN: Final = _gauge(
    "nodepool_label_unavailable",
    "provider pool label code",
    "1 for each label that a pool cannot serve now.",
)
HOSTS: Final = _gauge(
    "nodepool_hosts",
    "provider pool state",
    "Static hosts that are up, down, quarantined, or not checked yet (unknown).",
)
HOST_UP: Final = _gauge(
    "nodepool_host_up",
    "provider pool host",
    "1 if all launchers can reach the static host, else 0. Hosts that are not checked yet are left out.",
)
LAUNCHER_INFO: Final = _gauge(
    "nodepool_launcher_info",
    "launcher version config state",
    "1 for each launcher, with the hash of its configuration.",
)
LAUNCHER_START: Final = _gauge(
    "nodepool_launcher_start_time_seconds",
    "launcher",
    "When the launcher started, in seconds since the epoch.",
)
RELOAD_OK: Final = _gauge(
    "nodepool_config_last_reload_successful",
    "launcher",
    "1 if the last changed configuration is in effect, 0 if it was refused or its reload failed.",
)
RELOAD_TIME: Final = _gauge(
    "nodepool_config_last_reload_time_seconds",
    "launcher",
    "When that was, in seconds since the epoch.",
)
ABSENT: Final = _gauge(
    "nodepool_provider_absent",
    "launcher provider",
    "1 for each provider of its configuration that a launcher could not start.",
)
MAINTENANCE: Final = _gauge(
    "nodepool_maintenance",
    "kind name mode",
    "1 for what operators paused, drained or quarantined.",
)
OWNERLESS: Final = _gauge(
    "nodepool_ownerless_records",
    "kind name",
    "Nodes, uploads and builds of a provider, pool, label or builder that no daemon serves. Kind uploads: no builder "
    "serves the provider, launchers do.",
)
BUILDS: Final = _gauge("nodepool_image_builds", "image state", "Builds of an image in each state.")
UPLOADS: Final = _gauge(
    "nodepool_image_uploads",
    "image provider state",
    "Uploads of an image to a provider in each state.",
)
BUILD_TIME: Final = _gauge(
    "nodepool_image_last_ready_build_time_seconds",
    "image",
    "When the newest ready build of an image became ready, in seconds since the epoch.",
)
UPLOAD_TIME: Final = _gauge(
    "nodepool_image_current_upload_time_seconds",
    "image provider",
    "When the upload became ready from which a provider's nodes are made, in seconds since the epoch.",
)
ZOOKEEPER_LATENCY: Final = Metric(
    "nodepool_zookeeper_latency_seconds",
    MetricKind.TIMER,
    (),
    "How long ZooKeeper took to answer writes and pings of this process.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)

#: All of the above, in the order of the documentation.
COMPUTED: Final = (
    BUILD_INFO,
    CONNECTED,
    COMPLETE,
    LOOP_AGE,
    THREADS,
    REQUESTS,
    WAITING,
    OLDEST,
    LIMIT,
    LIMIT_USED,
    LIMIT_OTHERS,
    POOL_STATE,
    POOL_LAUNCHES,
    POOL_SLOW,
    LABEL_BROKEN,
    HOSTS,
    HOST_UP,
    LAUNCHER_INFO,
    LAUNCHER_START,
    RELOAD_OK,
    RELOAD_TIME,
    ABSENT,
    MAINTENANCE,
    OWNERLESS,
    BUILDS,
    UPLOADS,
    BUILD_TIME,
    UPLOAD_TIME,
    ZOOKEEPER_LATENCY,
)
#: What is also in `nodepool.metrics.catalog`, and is computed anew for Prometheus.
RECOMPUTED: Final = (
    NODES,
    NODES_BY_LABEL,
    NODES_BY_PROVIDER,
    ADDRESSABLE_REQUESTS,
    MAX_SERVERS,
    TENANT_LIMIT,
)
