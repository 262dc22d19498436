# SPDX-License-Identifier: Apache-2.0
"""Many nodes at once from a file that says nothing of rates and time-outs, on the simulated clouds of all drivers that
Nodepool 11.0.0 has, with the limits of calls that the clouds document: who installs this launcher loses nothing.

A real sshd answers for the static hosts. The backing nodes of the metastatic driver are servers of the simulated
OpenStack.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.openstack import BOOT_SECONDS, DELETE_SECONDS
from benchmarks.scenarios import aws, azure, gce, ibmvpc, kubernetes
from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import RELEASED, Metric, Row, Scenario
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.cloud_burst import CORRECT, burst, cost_metrics
from benchmarks.support.control_plane import KubernetesProvider
from benchmarks.support.place import Stage, per_request
from benchmarks.support.public_azure import HOSTS, AzureTranslation, write_public_auth_file
from benchmarks.support.public_cloud import public_cloud
from benchmarks.support.simulated_aws import AwsProvider, simulated_region
from benchmarks.support.simulated_azure import AzureProvider, simulated_subscription
from benchmarks.support.simulated_cloud import OpenStackProvider, simulated_cloud
from benchmarks.support.simulated_cluster import simulated_cluster
from benchmarks.support.simulated_gce import gce_provider, public_project, simulated_project
from benchmarks.support.simulated_ibmvpc import ibmvpc_provider, simulated_ibm_cloud
from benchmarks.support.static_hosts import LABEL, latencies, ready_hosts
from simulators.base.client import AdminClient
from tests.support.launcher_config import MetastaticProvider, Provider
from tests.support.section_provider import SectionProvider
from tests.support.sshd import SshServer

#: Keys that a file without tuning does not have. Host keys are not scanned, so ``boot-timeout`` has no effect.
TUNING: Final = ("rate", "boot-timeout", "launch-timeout", "launch-retries")
#: Until all is deleted: a released driver makes a call a second.
GONE_SECONDS: Final = 1200.0
#: Requests for static hosts that are not measured.
WARM_UP: Final = 10

#: A cloud with providers, and what the state of the cloud calls its machines.
Place = tuple[AdminClient, Sequence[Provider], str]


@contextmanager
def _openstack(directory: Path, _released: bool) -> Iterator[Place]:
    with simulated_cloud(directory, {"boot_seconds": BOOT_SECONDS, "delete_seconds": DELETE_SECONDS}) as cloud:
        yield cloud, [OpenStackProvider()], "servers"


@contextmanager
def _metastatic(directory: Path, released: bool) -> Iterator[Place]:
    """A server for each node, as ``max-parallel-jobs`` is 1. After ``grace-time``, which is 60 s, it is deleted."""
    with _openstack(directory, released) as (cloud, _, kind):
        yield cloud, [OpenStackProvider(label="backing"), MetastaticProvider([LABEL], "backing")], kind


@contextmanager
def _aws(directory: Path, _released: bool) -> Iterator[Place]:
    settings = {"boot_seconds": aws.BOOT_SECONDS, "end_seconds": aws.END_SECONDS, "throttles": True}
    with simulated_region(directory, settings) as cloud:
        yield cloud, [AwsProvider()], "instances"


@contextmanager
def _azure(directory: Path, _released: bool) -> Iterator[Place]:
    settings = {"boot_seconds": azure.BOOT_SECONDS, "delete_seconds": azure.DELETE_SECONDS, "throttles": True}
    with (
        simulated_subscription(directory, settings) as (cloud, private),
        public_cloud(directory, cloud.url, HOSTS, AzureTranslation()) as url,
    ):
        yield cloud, [AzureProvider(write_public_auth_file(directory / "public.json", private, url))], "vms"


@contextmanager
def _gce(directory: Path, released: bool) -> Iterator[Place]:
    settings = {"boot_seconds": gce.BOOT_SECONDS, "delete_seconds": gce.DELETE_SECONDS, "throttles": True}
    with (
        simulated_project(directory, settings) as (cloud, key_file),
        public_project(directory, cloud.url, key_file) as url,
    ):
        yield cloud, [gce_provider(None if released else (key_file, url))], "instances"


@contextmanager
def _ibmvpc(directory: Path, _released: bool) -> Iterator[Place]:
    settings = {"boot_seconds": ibmvpc.BOOT_SECONDS, "delete_seconds": ibmvpc.DELETE_SECONDS}
    with simulated_ibm_cloud(directory, settings) as (cloud, credentials):
        yield cloud, [ibmvpc_provider(credentials, 0, addresses=False, kept=0)], "instances"


@contextmanager
def _pods(driver: str, directory: Path, _released: bool) -> Iterator[Place]:
    """With OpenShift, service accounts get token secrets by themselves, as before Kubernetes 1.24.

    Without them each launch of the released driver fails: "couldn't find token for service account".
    """
    openshift = driver != "kubernetes"
    settings = {**kubernetes.BURST_SETTINGS, "openshift": openshift, "token_secrets_by_itself": openshift}
    provider = KubernetesProvider(driver=driver)
    with simulated_cluster(directory, settings) as cloud:
        room = {"cpu": "2000", "memory": "1Ti", "pods": "2000"}
        cloud.call("POST", "add-node", {"name": "large", "capacity": room})
        if driver == "openshiftpods":
            cloud.call("POST", "add-namespace", {"name": provider.pool})
        yield cloud, [provider], "node_places"


DRIVERS: Final[Mapping[str, Callable[[Path, bool], Any]]] = {
    "openstack": _openstack,
    "aws": _aws,
    "azure": _azure,
    "gce": _gce,
    "ibmvpc": _ibmvpc,
    "metastatic": _metastatic,
    **{driver: partial(_pods, driver) for driver in ("kubernetes", "openshift", "openshiftpods")},
}
METRICS: Final = (
    Metric("rate", "nodes/s", more_is_better=True, plot=True),
    Metric("p50_ms", "p50", "ms", plot=True),
    Metric("p99_ms", "p99", "ms"),
    *cost_metrics("machines"),
)


def run(driver: str, stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    directory = Path(tempfile.mkdtemp(prefix=f"{driver}-", dir=stage.directory))
    nodes = size["nodes"]
    with DRIVERS[driver](directory, candidate.name == RELEASED) as (cloud, tuned, kind):
        providers = [SectionProvider(_without_tuning(provider)) for provider in tuned]
        found = burst(stage, candidate, cloud, providers, nodes, kind, GONE_SECONDS).as_dict()
    return [_row(driver, nodes, candidate, found)]


def _without_tuning(provider: Provider) -> dict[str, Any]:
    return {key: value for key, value in provider.as_config().items() if key not in TUNING}


def run_static(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    """Two requests for each host. Its keys are scanned again after the first: that is the default."""
    nodes = size["nodes"]
    sshd = SshServer(Path(tempfile.mkdtemp(prefix="sshd-", dir=stage.directory)))
    sshd.start()
    try:
        with (
            stage.place(candidate) as place,
            ready_hosts(place, nodes // 2, WARM_UP, port=sshd.port, check=True) as ready,
        ):
            before = place.read()
            found = ready.load.run(nodes, LABEL, ready.load.use_and_return)
            ready.wait_idle()
            costs = {**per_request(place.read() - before, nodes), "memory_mib": place.memory_mib()}
    finally:
        sshd.stop()
    values = {"rate": nodes / (found.last_fulfilled - found.start), **latencies([found]), **costs}
    return [_row("static", nodes, candidate, values)]


def _row(driver: str, nodes: int, candidate: Candidate, values: Mapping[str, Any]) -> Row:
    known = {metric.key: values[metric.key] for metric in METRICS if metric.key in values}
    return Row(_name(driver), str(nodes), candidate.name, rounded(known))


def _name(driver: str) -> str:
    return f"defaults-{driver}"


def _scenario(
    driver: str, run: Callable[..., list[Row]], source: str = "", correct: Sequence[Bound] = CORRECT
) -> Scenario:
    return Scenario(
        name=_name(driver),
        title=f"{driver}: 100 nodes at once{source}, from a file with neither rates nor time-outs",
        metrics=METRICS,
        goals=(TimesReleased("rate", 1), TimesReleased("p50_ms", 1), *correct),
        run=run,
        sizes={"nodes": 100},
        quick={"nodes": 10},
    )


SCENARIOS = (
    *(_scenario(driver, partial(run, driver)) for driver in DRIVERS),
    # A host is no machine that is made: no node has two.
    _scenario("static", run_static, " from 50 hosts", CORRECT[:1]),
)
