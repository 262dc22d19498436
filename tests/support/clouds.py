# SPDX-License-Identifier: Apache-2.0
"""The six simulated clouds under one set of words: what a provider says of each, and how each is given a fault.

A test that takes one of them names what happens, for example "creations are refused", and no operation of an API.
"""

from __future__ import annotations

import abc
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from simulators.aws import AwsSimulator
from simulators.azure import AzureSimulator
from simulators.base.simulator import Simulator
from simulators.gce import GceSimulator
from simulators.gce.cloud import BUCKET, FAMILY, ZONE
from simulators.gce.links import IMAGE_PROJECT
from simulators.gce.links import PROJECT as GCE_PROJECT
from simulators.ibmvpc import IbmVpcSimulator
from simulators.ibmvpc.images import IMAGE_NAME
from simulators.kubernetes import KubernetesSettings, KubernetesSimulator
from simulators.openstack import OpenStackSimulator
from tests.support.kubernetes_place import PROJECT, SimulatedCluster, provider_section
from tests.support.wait import wait_for

PROVIDER = "cloud-a"
Json = dict[str, Any]


def _section(driver: str, image: Json, label: Json, ssh_port: int, **more: Any) -> Json:
    """A provider with one pool and one label, ``small``.

    :param more: keys of the provider, with ``_`` for ``-``.
    :param ssh_port: its instances are reached there over SSH before they are given out.
    """
    return {
        "name": PROVIDER,
        "driver": driver,
        "rate": 0,
        **{key.replace("_", "-"): value for key, value in more.items()},
        "cloud-images": [{"name": "debian", **image, "connection-port": ssh_port}],
        "pools": [{"name": "main", "labels": [{"name": "small", "cloud-image": "debian", **label}]}],
    }


def openstack_section(ssh_port: int = 22) -> Json:
    """As `_section`, in the cloud ``simulator`` of clouds.yaml."""
    image = {"image-name": "cloud-image", "username": "debian"}
    section = _section("openstack", image, {"min-ram": 512}, ssh_port, cloud="simulator")
    section["pools"][0]["networks"] = ["provider"]
    return section


def aws_section(image_id: str, ssh_port: int = 22) -> Json:
    """As `_section`."""
    image = {"image-id": image_id, "username": "admin"}
    return _section("aws", image, {"instance-type": "t3.small", "key-name": "zuul"}, ssh_port, region_name="us-east-1")


def azure_section(auth_path: Path, ssh_port: int = 22) -> Json:
    """As `_section`."""
    image = {"username": "zuul", "key": "ssh-ed25519 AAAA", "image-filter": {"name": "debian-12"}}
    where = {"location": "northeurope", "resource_group": "nodepool", "resource_group_location": "northeurope"}
    label = {"hardware-profile": {"vm-size": "Standard_B1s"}}
    return _section("azure", image, label, ssh_port, **where, auth_path=str(auth_path), network="ci")


def gce_section(key_file: Path, url: str, ssh_port: int = 22) -> Json:
    """As `_section`.

    :param key_file: of the service account; ``url``: of Compute Engine and of Cloud Storage.
    """
    image = {"image-project": IMAGE_PROJECT, "image-family": FAMILY, "username": "zuul", "key": "ssh-ed25519 AAAA"}
    where = {"project": GCE_PROJECT, "region": "us-central1", "zone": ZONE, "endpoint": url}
    storage = {"bucket-name": BUCKET, "endpoint": url}
    label = {"instance-type": "n1-standard-1"}
    return _section("gce", image, label, ssh_port, **where, object_storage=storage, credentials_file=str(key_file))


def ibmvpc_section(credentials: Path, ssh_port: int = 22) -> Json:
    """As `_section`; instances have floating IPs."""
    image = {"username": "root", "image-name": IMAGE_NAME, "keys": ["zuul"]}
    where = {"region": "us-south", "vpc": "ci", "zone": "us-south-1", "subnet": "ci-us-south-1", "public_ipv4": True}
    return _section("ibmvpc", image, {"profile": "cx2-2x4"}, ssh_port, **where, credentials_file=str(credentials))


def with_two_pools(section: Json, **large: Any) -> Json:
    """The same for the contract of drivers: its name is ``somewhere``, and nothing scans the instances.

    :param large: keys of the label ``large`` of the pool ``other``, which has five instances at most; ``_`` is ``-``.
    """
    (main,) = section["pools"]
    main["host-key-checking"] = False
    label = {**main["labels"][0], "name": "large", **{key.replace("_", "-"): value for key, value in large.items()}}
    other = {**main, "name": "other", "max-servers": 5, "labels": [label]}
    return {**section, "name": "somewhere", "pools": [main, other]}


class SimulatedCloud(abc.ABC):
    """A simulator that runs, for one test.

    :cvar operations: what the API calls a creation (``create``), a deletion (``delete``) and a list (``list``).
    :cvar leftovers: kinds of the simulator's contents of which none may be there in the end.
    :cvar deletion_faults: how the simulator calls a deletion that is accepted and does not happen.
    :cvar put_offs: answers by which this cloud puts a call off.
    :cvar zones: names of two places in which a label's instances can be; none: the cloud has no such choice.
    :cvar scanned: nodes are reached over SSH, at an address of this machine.
    :cvar cores: of a node; 0: pools have no limit of them.
    :cvar making: how the simulator counts that an instance was made; ``first``: that it counts at the beginning.
    """

    name: ClassVar[str]
    operations: ClassVar[Mapping[str, str]]
    leftovers: ClassVar[Sequence[str]] = ()
    deletion_faults: ClassVar[tuple[str, str]] = ("deletes", "swallowed")
    put_offs: ClassVar[Sequence[Json]] = ({"kind": "429"}, {"kind": "429", "retry_after": 2})
    zones: ClassVar[Sequence[str]] = ()
    scanned: ClassVar[bool] = True
    cores: ClassVar[int] = 1
    making: ClassVar[str] = "instances made"
    first: ClassVar[int] = 0
    #: The list in which the simulator says which instances there are, and its keys of their names and metadata.
    listed_as: ClassVar[tuple[str, str, str]] = ("instances", "id", "metadata")

    def __init__(self, directory: Path, ssh_port: int) -> None:
        self.directory = directory
        self.ssh_port = ssh_port
        self.simulator: Any = self.make_simulator()
        self._strays = itertools.count(9999999990)

    @abc.abstractmethod
    def make_simulator(self) -> Simulator[Any]: ...

    @abc.abstractmethod
    def section(self) -> Json:
        """A provider with one pool and one label, ``small``, once the simulator has been started."""

    def environment(self) -> Mapping[str, str]:
        """What the launcher needs in its environment."""
        return {}

    @classmethod
    def choose_zones(cls, section: Json, *zones: str) -> None:
        """Nodes may be in each of some zones, in this order. :param zones: none = all of `zones`."""
        raise NotImplementedError

    # -- what there is

    def state(self) -> Json:
        found: Json = self.simulator.state()
        return found

    def marked(self) -> list[tuple[str, Json]]:
        """Name in the cloud, and metadata, of all instances that live, whether lists have them or not."""
        with self.simulator.cloud():
            return self.listed(self.simulator.application)

    @classmethod
    def listed(cls, application: Any) -> list[tuple[str, Json]]:
        """The same for an application, as its simulator has it."""
        what, name, metadata = cls.listed_as
        found = application.admin.handlers["GET", f"/admin/{what}"]({})[what]
        return [(one[name], dict(one[metadata])) for one in found]

    def instances(self) -> dict[str, str]:
        """Node id -> name in the cloud."""
        return {marks["nodepool_node_id"]: name for name, marks in self.marked() if "nodepool_node_id" in marks}

    def left(self) -> dict[str, int]:
        """What is there of the launcher's, by kind; kinds of which there is nothing are left out."""
        contents = self.state()["contents"]
        return {kind: contents[kind] for kind in self.leftovers if contents[kind]}

    def names(self) -> list[str]:
        """What the cloud calls its instances that bear the marks of a launcher."""
        return [name for name, marks in self.marked() if "nodepool_node_id" in marks]

    def calls(self, what: str) -> int:
        """How often ``create``, ``delete`` or ``list`` was called."""
        return int(self.state()["calls"].get(self.operations[what], 0))

    @property
    def made(self) -> int:
        """How many instances were made until now."""
        return int(self.state()["events"].get(self.making, 0)) - self.first

    def instance_of(self, node: Mapping[str, Any]) -> str:
        """What `instances` calls the instance of a node that has one."""
        return str(node["external_id"])

    @property
    def most_instances(self) -> int:
        """The most at once until now."""
        return int(self.state()["peak_by_provider"].get(PROVIDER, 0))

    # -- what happens to it

    def change(self, **settings: object) -> None:
        """Settings that all simulators have under these names."""
        self.simulator.change(**settings)

    def fail(self, calls: str | Sequence[str], *kinds: str | Json, **more: Any) -> None:
        """Each kind of failure happens to each of the calls. Calls that failed before go well.

        :param calls: ``create``, ``delete``, ``list``; ``*`` = all that there are.
        :param kinds: as in `simulators.base.rules.ErrorRule`, whose other settings are in ``more``.
        """
        operations = [self.operations.get(call, call) for call in ([calls] if isinstance(calls, str) else calls)]
        rules = [kind if isinstance(kind, dict) else {"kind": kind} for kind in kinds]
        self.change(errors=[{"operation": name, **more, **rule} for name in operations for rule in rules])

    def heal(self) -> None:
        """All calls go well."""
        self.change(errors=[])

    def fail_boots(self, kind: str = "failed", count: int | None = None) -> None:
        """New instances do not become usable: they ``failed``, or they are ``stuck``."""
        self.change(boots=[{"kind": kind, "count": count}])

    def forget_deletions(self, count: int) -> None:
        """Deletions are accepted, and do not happen."""
        setting, kind = self.deletion_faults
        self.change(**{setting: [{"kind": kind, "count": count}]})

    def stick_deletions(self, node_id: str) -> None:
        """Deletions begin, that of a node's instance first, and come to no end until `release`."""
        self.change(**{self.deletion_faults[0]: [{"kind": "stuck"}]})

    def release(self) -> None:
        """What is stuck goes on."""
        self.change(**{self.deletion_faults[0]: []})
        self.do("release-stuck")

    def do(self, deed: str, **arguments: str) -> None:
        with self.simulator.cloud():
            self.simulator.application.admin.handlers["POST", f"/admin/{deed}"](arguments)

    def vanish(self, node_id: str) -> None:
        """The instance of a node disappears; no list ever has it again."""
        self.do("vanish", **{self.listed_as[1]: self.instances()[node_id]})

    def boots_take(self, seconds: float) -> None:
        """New instances come up after so long."""
        self.change(boot_seconds=[seconds, seconds])

    def short_pages(self) -> None:
        """Lists come in pages of one entry, and the first is empty where a cloud does that."""
        self.change(page_limit=1, empty_pages=True)

    def missing_image(self, image: Json) -> Json:
        """A cloud image ``missing`` that is not there, otherwise as this one."""
        raise NotImplementedError

    def no_room(self, zone: str) -> None:
        """No instance finds capacity in a zone."""
        self.change(capacity=[{"zone": zone}])

    def limit(self, instances: int) -> None:
        """The quota is for so many instances of the label, all in all."""
        raise NotImplementedError

    def lists_are_late(self, rate: float = 1.0, seconds: float = 3.0) -> None:
        """Lists lack what is new, and have what is deleted, for a while."""
        lag = [seconds, seconds]
        self.change(hidden_rate=rate, hidden_seconds=lag, ghost_rate=rate, ghost_seconds=lag)

    def marks(self, provider: str, installation: str) -> dict[str, str]:
        """What is on an instance of a node that is not there."""
        return {
            "nodepool_provider_name": provider,
            "nodepool_pool_name": "main",
            "nodepool_node_id": str(next(self._strays)),
            "nodepool_installation_id": installation,
        }

    @abc.abstractmethod
    def leak(self, provider: str, installation: str) -> str:
        """An instance with the marks of a provider, of a node that is not there. Returns its name in `instances`."""


class OpenStack(SimulatedCloud):
    name = "openstack"
    operations: ClassVar = {
        "create": "compute.create_server",
        "delete": "compute.delete_server",
        "list": "compute.list_servers",
    }
    leftovers = ("servers", "ports", "floating_ips", "volumes")
    making = "servers created"
    listed_as = ("servers", "id", "metadata")

    def make_simulator(self) -> OpenStackSimulator:
        return OpenStackSimulator()

    def section(self) -> Json:
        return openstack_section(self.ssh_port)

    def environment(self) -> Mapping[str, str]:
        file = self.simulator.write_clouds_yaml(self.directory / "clouds.yaml")
        return {"OS_CLIENT_CONFIG_FILE": str(file)}

    def fail_boots(self, kind: str = "failed", count: int | None = None) -> None:
        self.change(boots=[{"kind": {"failed": "error"}.get(kind, kind), "count": count}])

    def missing_image(self, image: Json) -> Json:
        return image | {"name": "missing", "image-name": "missing"}

    def short_pages(self) -> None:
        self.change(page_limit=1)

    def limit(self, instances: int) -> None:
        self.change(quota={"instances": instances})

    def lists_are_late(self, rate: float = 1.0, seconds: float = 3.0) -> None:
        self.change(hidden_rate=rate, hidden_seconds=[seconds, seconds])

    def leak(self, provider: str, installation: str) -> str:
        with self.simulator.cloud() as cloud:
            return str(cloud.add_server(metadata=self.marks(provider, installation)).id)


class Aws(SimulatedCloud):
    name = "aws"
    operations: ClassVar = {
        "create": "ec2.RunInstances",
        "delete": "ec2.TerminateInstances",
        "list": "ec2.DescribeInstances",
    }
    leftovers = ("instances", "volumes", "hosts")
    deletion_faults = ("ends", "swallowed")
    put_offs = ({"kind": "503", "code": "RequestLimitExceeded"},)
    zones = ("us-east-1a", "us-east-1b")
    making = "instances created"

    def make_simulator(self) -> AwsSimulator:
        return AwsSimulator()

    def section(self) -> Json:
        with self.simulator.cloud() as cloud:
            return aws_section(cloud.image_id, self.ssh_port)

    def environment(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.simulator.environment
        return found

    @classmethod
    def choose_zones(cls, section: Json, *zones: str) -> None:
        for pool in section["pools"]:
            pool["availability-zone"] = list(zones or cls.zones)

    def missing_image(self, image: Json) -> Json:
        return image | {"name": "missing", "image-id": "ami-00000000000000000"}

    def limit(self, instances: int) -> None:
        self.change(quotas={"L-1216C47A": 2 * instances})

    def instance_of(self, node: Mapping[str, Any]) -> str:
        return str(node["external_id"]["instance"])

    def lists_are_late(self, rate: float = 1.0, seconds: float = 3.0) -> None:
        lag = [seconds, seconds]
        self.change(
            hidden_rate=rate,
            hidden_seconds=lag,
            tag_lag_rate=rate,
            tag_lag_seconds=lag,
            late_tags=True,
            state_lag_seconds=lag,
        )

    def leak(self, provider: str, installation: str) -> str:
        with self.simulator.cloud() as cloud:
            return str(cloud.add_instance(self.marks(provider, installation)).id)


class Azure(SimulatedCloud):
    name = "azure"
    operations: ClassVar = {
        "create": "virtualMachines.put",
        "delete": "virtualMachines.delete",
        "list": "virtualMachines.list",
    }
    leftovers = ("vms", "nics", "addresses", "disks")
    zones = ("1", "2")
    cores = 0
    making = "VMs made"
    listed_as = ("vms", "name", "tags")

    def make_simulator(self) -> AzureSimulator:
        simulator = AzureSimulator()
        simulator.change(nic_reserved_seconds=0)
        return simulator

    def section(self) -> Json:
        file = self.simulator.write_auth_file(self.directory / "azure.json")
        return azure_section(file, self.ssh_port)

    @classmethod
    def choose_zones(cls, section: Json, *zones: str) -> None:
        for pool in section["pools"]:
            pool["availability-zones"] = list(zones or cls.zones)

    def missing_image(self, image: Json) -> Json:
        return image | {"name": "missing", "image-filter": {"name": "missing"}}

    def short_pages(self) -> None:
        self.change(page_limit=1)

    def limit(self, instances: int) -> None:
        self.change(quotas={"virtualMachines": instances, "cores": instances})

    def leak(self, provider: str, installation: str) -> str:
        marks = self.marks(provider, installation)
        with self.simulator.cloud() as cloud:
            return str(cloud.add_vm(f"np{marks['nodepool_node_id']}", marks).name)


class Gce(SimulatedCloud):
    name = "gce"
    operations: ClassVar = {
        "create": "instances.insert",
        "delete": "instances.delete",
        "list": "instances.list",
    }
    leftovers = ("instances", "disks")
    deletion_faults = ("deletes", "failed")
    put_offs = (*SimulatedCloud.put_offs, {"kind": "403", "reason": "rateLimitExceeded"})
    zones = ("us-central1-a", "us-central1-b")
    listed_as = ("instances", "name", "metadata")

    def make_simulator(self) -> GceSimulator:
        return GceSimulator()

    def section(self) -> Json:
        file = self.simulator.write_key_file(self.directory / "key.json")
        return gce_section(file, self.simulator.url, self.ssh_port)

    @classmethod
    def choose_zones(cls, section: Json, *zones: str) -> None:
        section["zone"] = list(zones or cls.zones)

    def missing_image(self, image: Json) -> Json:
        return image | {"name": "missing", "image-family": "missing"}

    def limit(self, instances: int) -> None:
        self.change(quotas={"INSTANCES": instances})

    def leak(self, provider: str, installation: str) -> str:
        marks = self.marks(provider, installation)
        with self.simulator.cloud() as cloud:
            return str(cloud.add_instance(f"np{marks['nodepool_node_id']}", marks, marks).name)


class IbmVpc(SimulatedCloud):
    name = "ibmvpc"
    operations: ClassVar = {
        "create": "vpc.create_instance",
        "delete": "vpc.delete_instance",
        "list": "vpc.list_instances",
    }
    leftovers = ("instances", "volumes")
    zones = ("us-south-1", "us-south-2")
    cores = 0
    listed_as = ("instances", "name", "metadata")

    def make_simulator(self) -> IbmVpcSimulator:
        return IbmVpcSimulator()

    def section(self) -> Json:
        file = self.simulator.write_credentials(self.directory / "ibm.env")
        return ibmvpc_section(file, self.ssh_port)

    @classmethod
    def choose_zones(cls, section: Json, *zones: str) -> None:
        chosen = list(zones or cls.zones)
        section |= {"zone": chosen, "subnet": [f"ci-{zone}" for zone in chosen]}

    def missing_image(self, image: Json) -> Json:
        return image | {"name": "missing", "image-name": "missing"}

    def limit(self, instances: int) -> None:
        self.change(quotas={"vcpus": 2 * instances})

    def vanish(self, node_id: str) -> None:
        with self.simulator.cloud() as cloud:
            cloud.instances.forget(cloud.resources.named("instances", self.instances()[node_id]))

    def leak(self, provider: str, installation: str) -> str:
        marks = self.marks(provider, installation)
        tags = [f"{key}:{value}" for key, value in marks.items()]
        with self.simulator.cloud() as cloud:
            return str(cloud.add_instance(f"np{marks['nodepool_node_id']}", f"np_{provider}_main", tags=tags).name)


class Kubernetes(SimulatedCloud):
    """:cvar context: of the kubeconfig."""

    name = "kubernetes"
    operations: ClassVar = {"create": "namespaces.create", "delete": "namespaces.delete", "list": "namespaces.list"}
    scanned = False
    # The API server never says it without.
    put_offs = ({"kind": "429", "retry_after": 1},)
    making = "namespaces created"
    #: Namespaces that every cluster has, and ours.
    first = 3
    context: ClassVar[str] = "admin"
    #: A namespace that something keeps from being deleted.
    held = ""

    def make_simulator(self) -> KubernetesSimulator:
        simulator = KubernetesSimulator(KubernetesSettings(openshift=self.name != "kubernetes"))
        with simulator.cloud() as cluster:
            cluster.add_namespace(PROJECT)
        return simulator

    def section(self) -> Json:
        section = provider_section(self.name, self.context, PROVIDER)
        section["pools"][0]["labels"][0]["name"] = "small"
        return section

    def environment(self) -> Mapping[str, str]:
        return {"KUBECONFIG": str(self.simulator.write_kubeconfig(self.directory / "kubeconfig"))}

    def left(self) -> dict[str, int]:
        return dict(Counter(SimulatedCluster(self.simulator).names()))

    def state(self) -> Json:
        with self.simulator.cloud():
            found: Json = self.simulator.application.admin.state()
        return found

    def marked(self) -> list[tuple[str, Json]]:
        with self.simulator.cloud():
            found = self.simulator.application.admin.handlers["GET", "/admin/namespaces"]({})["namespaces"]
        return [(one["metadata"]["name"], one["metadata"].get("labels") or {}) for one in found]

    def fail_boots(self, kind: str = "failed", count: int | None = None) -> None:
        self.change(pods=[{"outcome": {"stuck": "pending"}.get(kind, kind), "count": count}])

    def vanish(self, node_id: str) -> None:
        name = self.instances()[node_id]
        self.do("end-namespace", namespace=name)
        wait_for("the namespace has ended", lambda: name not in self.instances().values())

    def boots_take(self, seconds: float) -> None:
        self.change(start_seconds=[seconds, seconds])

    def stick_deletions(self, node_id: str) -> None:
        self.held = self.instances()[node_id]
        with self.simulator.cloud() as cluster:
            cluster.hold(self.held)

    def release(self) -> None:
        self.change(pods=[])
        self.do("release-stuck")
        if self.held:
            with self.simulator.cloud() as cluster:
                cluster.release(self.held)

    def lists_are_late(self, rate: float = 1.0, seconds: float = 3.0) -> None:
        """Watches break, and expire: what is watched is known late."""
        self.change(watches=[{"kind": kind, "rate": rate / 2, "after_seconds": 0.3} for kind in ("cut", "expired")])

    def leak(self, provider: str, installation: str) -> str:
        name = f"leaked-{provider}-{installation}"
        with self.simulator.cloud() as cloud:
            cloud.add_namespace(name, self.marks(provider, installation))
        return name


class OpenShift(Kubernetes):
    """Who makes projects may do no more than that."""

    name = "openshift"
    context = "developer"


class OpenShiftPods(Kubernetes):
    """Nodes are pods in a project that is there."""

    name = "openshiftpods"


CLOUDS: dict[str, type[SimulatedCloud]] = {
    cloud.name: cloud for cloud in (OpenStack, Aws, Azure, Gce, IbmVpc, Kubernetes)
}
#: With those that most tests leave out: they do nearly the same as another one.
ALL_CLOUDS = {**CLOUDS, **{cloud.name: cloud for cloud in (OpenShift, OpenShiftPods)}}
