# SPDX-License-Identifier: Apache-2.0
"""Every metric, declared once: Prometheus' name with its labels, meaning, and statsd's name (reference/metrics).

The registry, ``/metrics``, statsd and the page of the reference take all from here.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from nodepool.metrics.registry import Metric, MetricKind

#: For how long it takes until a machine can be used, in seconds.
LAUNCH_BUCKETS: Final = (1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 1800)
_DECLARED: Final[list[Metric]] = []


def _declare(kind: MetricKind, name: str, help_text: str, statsd: str = "", **more: Any) -> Metric:
    """:param name: with its labels, as queries have it: ``name{label,label}``. Others: see `Metric`."""
    name, _, labels = name.rstrip("}").partition("{")
    metric = Metric(name, kind, tuple(labels.split(",")) if labels else (), help_text, statsd, **more)
    _DECLARED.append(metric)
    return metric


_gauge = partial(_declare, MetricKind.GAUGE)
_counter = partial(_declare, MetricKind.COUNTER)
_timer = partial(_declare, MetricKind.TIMER)


NODES: Final = _gauge("nodepool_nodes{state}", "Nodes in each state.", "nodepool.nodes.{state}")
NODES_BY_LABEL: Final = _gauge(
    "nodepool_nodes_by_label{label,state}",
    "Nodes by label and state. A node counts once for each of its labels.",
    "nodepool.label.{label}.nodes.{state}",
)
NODES_BY_PROVIDER: Final = _gauge(
    "nodepool_nodes_by_provider{provider,state}",
    "Nodes by provider and state.",
    "nodepool.provider.{provider}.nodes.{state}",
)
ADDRESSABLE_REQUESTS: Final = _gauge(
    "nodepool_addressable_requests{provider,pool}",
    "Requests, in any state, that the pool could serve.",
    "nodepool.provider.{provider}.pool.{pool}.addressable_requests",
)
MAX_SERVERS: Final = _gauge(
    "nodepool_provider_max_servers{provider}",
    "Sum of max-servers of the pools of a provider; infinite when a pool is not limited.",
    "nodepool.provider.{provider}.max_servers",
)
TENANT_LIMIT: Final = _gauge(
    "nodepool_tenant_limit{tenant,limit}",
    "Limits of tenants; cores, instances and ram always, infinite when they are not limited.",
    "nodepool.tenant_limits.{tenant}.{limit}",
)
LAUNCH: Final = _timer(
    "nodepool_launch{result,provider,az,requestor}",
    "Ends of launches, and how long they took from the first attempt on. The result is ready, or error and a reason.",
    views={
        "nodepool_launch": "nodepool.launch.{result}",
        "nodepool_launch_by_provider": "nodepool.launch.provider.{provider}.{result}",
        "nodepool_launch_by_provider_az": "nodepool.launch.provider.{provider}.{az}.{result}",
        "nodepool_launch_by_requestor": "nodepool.launch.requestor.{requestor}.{result}",
    },
    buckets=LAUNCH_BUCKETS,
)
REQUEST_WAIT: Final = _timer(
    "nodepool_request_wait_seconds{label,outcome}",
    "How long requests took from submission until they were fulfilled or failed, once for each of their labels. "
    "Requests of min-ready are left out.",
    buckets=(0.1, 0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400),
)
BOOT: Final = _timer(
    "nodepool_boot_seconds{provider}",
    "From the start of an attempt to launch a node until the cloud reported that the instance runs.",
    buckets=LAUNCH_BUCKETS,
)
SCAN: Final = _timer(
    "nodepool_scan_seconds{provider}", "From then until the instance could be logged in to.", buckets=LAUNCH_BUCKETS
)
RELOADS: Final = _counter(
    "nodepool_config_reloads{outcome}",
    "Changed configurations: applied, refused as a whole or in part, or failed, which is tried again.",
)
SPANS: Final = _counter(
    "nodepool_trace_spans{outcome}",
    "Spans for the collector of traces: sent, or dropped because it does not take them.",
)
LEAKED: Final = _counter(
    "nodepool_provider_leaked{provider,resource}",
    "Leaked resources that were deleted.",
    "nodepool.provider.{provider}.leaked.{resource}",
)
INSTANCES_ENDED: Final = _counter(
    "nodepool_provider_instances_ended{provider,reason}",
    "Instances of nodes that ended, by the code that the cloud gives as the reason; NotFound = it gives none.",
)
CIRCUIT_OPEN: Final = _gauge(
    "nodepool_provider_circuit_open{launcher,provider}",
    "1 while this launcher launches nothing in a provider because its cloud keeps failing, else 0.",
    "nodepool.launcher.{launcher}.provider.{provider}.circuit_open",
)
CIRCUIT_OPENED: Final = _counter(
    "nodepool_provider_circuit_opened{provider}",
    "How often the circuit breaker of a provider opened.",
    "nodepool.provider.{provider}.circuit_opened",
)
ZK_QUEUE: Final = _gauge(
    "nodepool_launcher_zk{launcher,queue}",
    "What waits inside the launcher: calls to ZooKeeper, changes that are being read.",
    "nodepool.launcher.{launcher}.zk.{queue}",
)
DRIVER_CALLS: Final = _counter("nodepool_driver_calls{hook,provider}", "Calls of a method of a driver.")
DRIVER_CALL_ERRORS: Final = _counter(
    "nodepool_driver_call_errors{hook,provider}", "Such calls that ended with an error."
)
DRIVER_CALL_SECONDS: Final = _counter(
    "nodepool_driver_call_seconds{hook,provider}", "How long such calls took, all together."
)
LATE_CALLS: Final = _gauge(
    "nodepool_provider_late_calls{launcher,provider,hook}",
    "Calls of a method of a driver that have not returned and should have. The log names them.",
    "nodepool.launcher.{launcher}.provider.{provider}.late_calls.{hook}",
)
IMAGE_UPDATE: Final = _timer(
    "nodepool_image_update{image,provider}",
    "Uploads of images that became ready, and how long they took, the post-upload hook included.",
    views={"nodepool_image_update": "nodepool.image_update.{image}.{provider}"},
    buckets=(10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400),
)
UPLOAD_STATE: Final = _gauge(
    "nodepool_builder_upload_state{builder,image,provider}",
    "What a builder does with an image for a provider: 0 nothing, 2 uploads it, 3 uploads are paused.",
    "nodepool.builder.{builder}.image.{image}.provider.{provider}.upload.state",
)
CURRENT_UPLOADS: Final = _gauge(
    "nodepool_builder_current_uploads{builder}", "Uploads that run now.", "nodepool.builder.{builder}.current_uploads"
)
UPLOAD_WORKERS: Final = _gauge(
    "nodepool_builder_upload_workers{builder}", "Threads that upload.", "nodepool.builder.{builder}.upload_workers"
)
UNKNOWN_IMAGES: Final = _gauge(
    "nodepool_provider_unknown_images{provider}",
    "Images in the cloud that are marked as ours and have no record; nodepool alien-image-list lists them.",
    "nodepool.provider.{provider}.unknown_images",
)
BUILD_RESULT: Final = _gauge(
    "nodepool_dib_image_build_result_code{image}",
    "Exit code of the last build of an image; 0 = it succeeded; 1 also if it was ended or could not begin.",
    "nodepool.dib_image_build.{image}.status.rc",
)
BUILD_DURATION: Final = _timer(
    "nodepool_dib_image_build_duration{image}",
    "Ends of builds of an image, and how long they took.",
    "nodepool.dib_image_build.{image}.status.duration",
    buckets=(60, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800),
    statsd_counts=False,
)
LAST_BUILD: Final = _gauge(
    "nodepool_dib_image_build_last_build{image}",
    "When the last build of an image ended, in seconds since the epoch.",
    "nodepool.dib_image_build.{image}.status.last_build",
)
BUILD_SIZE: Final = _gauge(
    "nodepool_dib_image_build_size{image,ext}",
    "Bytes on the disk that the last ready build of an image takes in a format.",
    "nodepool.dib_image_build.{image}.{ext}.size",
)
BUILD_REQUESTS: Final = _gauge(
    "nodepool_image_build_requests", "Requests for builds that are not served yet.", "nodepool.image_build_requests"
)
BUILD_REQUESTS_OF_IMAGE: Final = _gauge(
    "nodepool_image_build_requests_by_image{image}",
    "The same for one image: 0 or 1.",
    "nodepool.image.{image}.image_build_requests",
)
BUILD_STATE: Final = _gauge(
    "nodepool_builder_build_state{builder,image}",
    "What a builder does with an image: 0 nothing, 1 builds it, 3 builds are paused.",
    "nodepool.builder.{builder}.image.{image}.build.state",
)
CURRENT_BUILDS: Final = _gauge(
    "nodepool_builder_current_builds{builder}", "Builds that run now.", "nodepool.builder.{builder}.current_builds"
)
BUILD_WORKERS: Final = _gauge(
    "nodepool_builder_build_workers{builder}", "Threads that build.", "nodepool.builder.{builder}.build_workers"
)

# Metrics that are computed when Prometheus asks, from what the web pages show, too (reference/metrics 9).

BUILD_INFO: Final = _gauge(
    "nodepool_build_info{version,kind}", "1, with the release and the kind of the daemon: launcher, builder or web."
)
CONNECTED: Final = _gauge("nodepool_zookeeper_connected", "1 while there is a connection to ZooKeeper, else 0.")
COMPLETE: Final = _gauge(
    "nodepool_caches_complete", "1 if the caches have all that ZooKeeper has, else 0: then other values may be old."
)
LOOP_AGE: Final = _gauge("nodepool_main_loop_age_seconds", "How long ago the main loop turned.")
THREADS: Final = _gauge(
    "nodepool_threads{thread}", "Threads that are alive, by name; what tells threads of one kind apart is left out."
)
REQUESTS: Final = _gauge("nodepool_requests{state}", "Requests in each state.")
WAITING: Final = _gauge(
    "nodepool_requests_waiting{label,code}",
    "Requests that no pool has begun to serve, by label and by what they wait for. A request counts once for "
    "each of its labels. Requests of min-ready are left out.",
)
OLDEST: Final = _gauge(
    "nodepool_requests_oldest_seconds{label}",
    "How long ago the oldest request that is not answered was submitted, by label. Requests of min-ready are left out.",
)
LIMIT: Final = _gauge(
    "nodepool_limit{scope,provider,pool,tenant,resource}",
    "Limits of pools, providers, clouds and tenants; ram in MiB. One that is not limited is left out.",
)
LIMIT_USED: Final = _gauge("nodepool_limit_used{scope,provider,pool,tenant,resource}", "What our nodes use of them.")
LIMIT_OTHERS: Final = _gauge(
    "nodepool_limit_used_by_others{scope,provider,pool,tenant,resource}",
    "What others use of the same quota, as far as it is known.",
)
TENANT_SHARE: Final = _gauge(
    "nodepool_tenant_share{tenant,resource}",
    "Which part of the resource the tenant uses where its requests can be served, 0 to 1, if tenants have shares. The "
    "resource is the one of which it uses the largest part.",
)
TENANT_USED: Final = _gauge("nodepool_tenant_used{tenant,resource}", "What the nodes of the tenant use; ram in MiB.")
TENANT_OLDEST: Final = _gauge(
    "nodepool_tenant_oldest_seconds{tenant}", "How long ago its oldest request that is not answered was submitted."
)
POOL_STATE: Final = _gauge(
    "nodepool_pool_state{provider,pool,state,code}", "Launchers in which the pool is in a state, and why."
)
POOL_LAUNCHES: Final = _gauge(
    "nodepool_pool_launches_running{provider,pool}", "Launches that run now, in all launchers."
)
POOL_SLOW: Final = _gauge(
    "nodepool_pool_launches_slow{provider,pool}", "Launches that take much longer than is usual, in all launchers."
)
LABEL_BROKEN: Final = _gauge(
    "nodepool_label_unavailable{provider,pool,label,code}", "1 for each label that a pool cannot serve now."
)
HOSTS: Final = _gauge(
    "nodepool_hosts{provider,pool,state}", "Static hosts that are up, down, quarantined, or not checked yet (unknown)."
)
HOST_UP: Final = _gauge(
    "nodepool_host_up{provider,pool,host}",
    "1 if all launchers can reach the static host, else 0. Hosts that are not checked yet are left out.",
)
LAUNCHER_INFO: Final = _gauge(
    "nodepool_launcher_info{launcher,version,config,state}", "1 for each launcher, with the hash of its configuration."
)
LAUNCHER_START: Final = _gauge(
    "nodepool_launcher_start_time_seconds{launcher}", "When the launcher started, in seconds since the epoch."
)
RELOAD_OK: Final = _gauge(
    "nodepool_config_last_reload_successful{launcher}",
    "1 if the last changed configuration is in effect, 0 if it was refused or its reload failed.",
)
RELOAD_TIME: Final = _gauge(
    "nodepool_config_last_reload_time_seconds{launcher}", "When that was, in seconds since the epoch."
)
ABSENT: Final = _gauge(
    "nodepool_provider_absent{launcher,provider}",
    "1 for each provider of its configuration that a launcher could not start.",
)
MAINTENANCE: Final = _gauge(
    "nodepool_maintenance{kind,name,mode}", "1 for what operators paused, drained or quarantined."
)
OWNERLESS: Final = _gauge(
    "nodepool_ownerless_records{kind,name}",
    "Nodes and uploads of a provider, pool or label that no daemon serves. Kind uploads: no builder serves the "
    "provider, launchers do.",
)
BUILDS: Final = _gauge("nodepool_image_builds{image,state}", "Builds of an image in each state.")
UPLOADS: Final = _gauge(
    "nodepool_image_uploads{image,provider,state}", "Uploads of an image to a provider in each state."
)
BUILD_TIME: Final = _gauge(
    "nodepool_image_last_ready_build_time_seconds{image}",
    "When the newest ready build of an image became ready, in seconds since the epoch.",
)
UPLOAD_TIME: Final = _gauge(
    "nodepool_image_current_upload_time_seconds{image,provider}",
    "When the upload became ready from which a provider's nodes are made, in seconds since the epoch.",
)
ROLLED_BACK: Final = _gauge(
    "nodepool_image_rolled_back{image,provider}",
    "1 where the newest ready build of an image was tried and rolled back.",
)
ZOOKEEPER_LATENCY: Final = _timer(
    "nodepool_zookeeper_latency_seconds",
    "How long ZooKeeper took to answer writes and pings of this process.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)

#: All of the above, in the order of the documentation.
ALL: Final = tuple(_DECLARED)
#: What is computed anew for Prometheus, from what the web pages show.
RECOMPUTED: Final = (NODES, NODES_BY_LABEL, NODES_BY_PROVIDER, ADDRESSABLE_REQUESTS, MAX_SERVERS, TENANT_LIMIT)
