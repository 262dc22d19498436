# SPDX-License-Identifier: Apache-2.0
"""Configuration of the Kubernetes driver, and what the drivers of OpenShift have in common with it.

First checks of keys together, then labels, pools and provider, then names that Kubernetes takes.

::

    providers:
      - name: cluster
        driver: kubernetes
        context: ci                     # of the kubeconfig
        pools:
          - name: main
            max-servers: 20
            labels:
              - name: pod-debian
                type: pod
                image: docker.io/debian:12
                cpu: 2
                memory: 2048
              - name: namespace
                type: namespace
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any, ClassVar, Final, Generic, TypeVar

from nodepool.driver.config import LabelSettings, Problem, Section, section_check
from nodepool.driver.framework.sections import DYNAMIC_HELP, DeclaredPool, LaunchingProviderConfig, labels_not_offered
from nodepool.model.config_keys import (
    ANY_MAPPING,
    FILLED_TEXT,
    FLAG,
    REQUIRED,
    SECONDS,
    TEXT,
    WHOLE,
    ConfigValue,
    From,
    ListOf,
    MappingOf,
    Number,
    Sections,
    Whole,
    key,
    section_class,
)

# What keys of a section of Kubernetes say together.
#
# Names that no object can have are refused here, with file and line, because the API would refuse each launch.

#: Keys that may stand beside ``spec``: they say nothing of how the pod is made, or count towards limits, too.
BESIDE_SPEC: Final = (
    *("name", "type", "spec", "labels", "dynamic-labels", "annotations", "python-path", "shell-type"),
    *("cpu", "memory", "storage", "gpu", "gpu-resource", "extra-resources"),
)
#: What a pod may ask for: keys without and with a limit.
RESOURCES: Final = ("cpu", "memory", "storage")


def keys_beside_spec(label: Section) -> list[str]:
    """Keys of the label of a pod that have no effect: those daemons of Nodepool 11 go on without."""
    if label.get("spec") is None or label.get("type") in ("namespace", "project"):
        return []
    return [key for key in label if key not in BESIDE_SPEC]


@section_check
def usable_label(label: Section) -> Iterator[Problem]:
    """Objects can have its name, and what it wants them to have."""
    name = label.get("name")
    if isinstance(name, str) and not is_label_value(name):
        yield ["name"], f"Kubernetes does not take it as a label's value; allowed are {LABEL_VALUE_TEXT}"
    for kind in ("labels", "dynamic-labels", "annotations"):
        found = label.get(kind)
        for one, value in (found if isinstance(found, dict) else {}).items():
            if not is_key(str(one)):
                yield [kind, one], f"no name that Kubernetes takes; allowed are {LABEL_VALUE_TEXT}, after domain/"
            elif kind == "labels" and not is_label_value(as_text(value)):
                yield [kind, one], f"no value that Kubernetes takes; allowed are {LABEL_VALUE_TEXT}"


@section_check
def usable_pod(label: Section) -> Iterator[Problem]:
    """The same of a label that makes a pod."""
    name = label.get("name")
    if isinstance(name, str) and not is_dns_label(name):
        yield ["name"], f"a pod is named like its label; allowed are {DNS_LABEL_TEXT}, 63 characters"
    for one in keys_beside_spec(label):
        yield [one], f"not beside spec, which is used as it is; beside it: {', '.join(BESIDE_SPEC)}"
    if label.get("spec") is None and not label.get("image"):
        yield [], "a pod needs an image; add image, or spec"


@section_check
def usable_pool(pool: Section) -> Iterator[Problem]:
    """Namespaces can have its name."""
    if not is_dns_label(pool["name"], MAX_POOL_CHARACTERS):
        text = f"namespaces begin with it; allowed are {DNS_LABEL_TEXT}, {MAX_POOL_CHARACTERS} characters"
        yield ["name"], text


@section_check
def usable_provider(provider: Section) -> Iterator[Problem]:
    """A label can have its name."""
    if not is_label_value(provider["name"]):
        yield ["name"], f"Kubernetes does not take it as a label's value; allowed are {LABEL_VALUE_TEXT}"


def pods_only(makes_pod: Callable[[Section], bool], label: Section) -> Section:
    """A check, see `usable_pod`, of labels that make pods."""
    return usable_pod(label) if makes_pod(label) else label


#: Declares a key of an amount that may be left out.
_amount: Final = functools.partial(key, Whole(0), None)
_of_provider: Final = functools.partial(key, WHOLE, From("provider"), default_text="that of the provider")
_OF_POOL: Final = "that of the pool"
_OR_REQUESTED: Final = "that of the pool, else what is requested"
#: ``type`` of a label without a pod.
NAMESPACE: Final = "namespace"


def texts(found: dict[Any, Any]) -> dict[str, str]:
    """Labels and annotations as Kubernetes takes them."""
    return {str(name): as_text(value) for name, value in found.items()}


class EnvironmentVariable(ConfigValue):
    """An entry of a label's ``env``."""

    name: str = key(FILLED_TEXT, REQUIRED, "Of the variable.")
    text: str = key(TEXT, REQUIRED, "Its value.", name="value")


class PodLabel(LabelSettings):
    """How to make a pod of a label.

    :param data: the section in the file.
    """

    image: str | None = key(FILLED_TEXT, None, "Image of the container.", default_text="required without ``spec``")
    image_pull: str = key(FILLED_TEXT, "IfNotPresent", "When the image is pulled: ``Always``, ``Never`` ...")
    python_path: str = key(TEXT, "auto", "Python interpreter in the container, for Ansible.")
    shell_type: str | None = key(TEXT.or_null(), None, "Shell in the container, for Ansible.")
    cpu: int | None = _amount("Cores that are requested.", default_text=_OF_POOL)
    memory: int | None = _amount("Memory that is requested.", unit="MiB", default_text=_OF_POOL)
    storage: int | None = _amount("Ephemeral storage that is requested.", unit="MB", default_text=_OF_POOL)
    cpu_limit: int | None = _amount("Cores at most.", default_text=_OR_REQUESTED)
    memory_limit: int | None = _amount("Memory at most.", unit="MiB", default_text=_OR_REQUESTED)
    storage_limit: int | None = _amount("Ephemeral storage at most.", unit="MB", default_text=_OR_REQUESTED)
    gpu: float | None = key(Number(0), None, "GPUs, requested and at most; only together with ``gpu-resource``.")
    gpu_resource: str | None = key(FILLED_TEXT, None, "Name of that resource, e.g. ``nvidia.com/gpu``.")
    env: Any = key(Sections(EnvironmentVariable), None, "Environment variables of the container.")
    node_selector: dict[str, str] | None = key(
        ANY_MAPPING.or_null(), None, "Labels that the cluster's node must have.", convert=texts
    )
    privileged: bool | None = key(FLAG, None, "Of the container's security context.", default_text="not set")
    scheduler_name: str | None = key(FILLED_TEXT, None, "Scheduler of the pod.", default_text="the cluster's")
    volumes: list[Any] | None = key(ListOf(ANY_MAPPING).or_null(), None, "Of the pod, as Kubernetes writes them.")
    volume_mounts: list[Any] | None = key(
        ListOf(ANY_MAPPING).or_null(), None, "Of the container, as Kubernetes writes them."
    )
    labels: dict[str, str] = key(
        ANY_MAPPING.or_null(), {}, "Of what is made for a node. ``nodepool_...`` are Nodepool's.", convert=texts
    )
    dynamic_labels: dict[str, str] = key(
        ANY_MAPPING, {}, f"{DYNAMIC_HELP} Characters that a label cannot have become ``_``.", convert=texts
    )
    annotations: dict[str, str] = key(ANY_MAPPING.or_null(), {}, "Of what is made for a node.", convert=texts)
    extra_resources: dict[str, int] = key(
        MappingOf(WHOLE),
        {},
        "What else a node uses of ``max-resources``. It counts there, and is not asked for in the cluster.",
        default_text="that of the pool",
    )
    spec: dict[str, Any] | None = key(
        ANY_MAPPING.or_null(),
        None,
        "Of the pod, as it is. Beside it only ``name``, ``type``, ``labels``, ``dynamic-labels``, ``annotations``, "
        "``python-path``, ``shell-type`` and the keys of resources that count towards limits.",
    )

    checks: ClassVar[tuple[Any, ...]] = (usable_label, usable_pod)
    surplus_keys = staticmethod(keys_beside_spec)
    #: Does a label, as it stands in the file, make a pod?
    makes_pod: ClassVar[Any] = staticmethod(lambda label: True)

    def __init__(self, pool: AnyPodPool, provider: Any, data: dict[str, Any]) -> None:
        super().__init__(data["name"], pool)
        self.read_keys(data)
        self.host_key_checking = False
        self.type = data.get("type", "pod")
        self.is_pod = self.makes_pod(data)
        self.env = [dict(variable) for variable in data.get("env") or []]
        self.extra_resources = self.extra_resources or pool.default_label_extra_resources
        for name in RESOURCES:
            wanted = getattr(self, name)
            default, default_limit = (getattr(pool, f"default_label_{name}{end}") for end in ("", "_limit"))
            limits = (getattr(self, f"{name}_limit"), default_limit, wanted, default)
            setattr(self, f"{name}_limit", next((limit for limit in limits if limit), None))
            setattr(self, name, wanted or default)


class KubernetesLabel(PodLabel):
    """How to make a namespace, or a pod in one of its own."""

    type: str = key(
        FILLED_TEXT,
        REQUIRED,
        "``namespace``: a job gets an empty namespace, and what it needs to work in it; ``pod``, or any other text: it "
        "gets a pod in a namespace of its own.",
        read=False,
    )

    makes_pod = staticmethod(lambda label: label.get("type") != NAMESPACE)
    checks = (usable_label, functools.partial(pods_only, makes_pod))


class AnyPodPool(DeclaredPool):
    """Keys of a pool of any driver that makes pods. The driver declares ``labels``."""

    checks: ClassVar[tuple[Any, ...]] = (usable_pool,)

    max_servers: float = key(
        WHOLE,
        math.inf,
        "Nodes at once; 0 or less = the pool declines every request.",
        default_text="that of the provider",
    )
    max_cores: int | None = _of_provider("Cores that the nodes may request.")
    max_ram: int | None = _of_provider("Memory that the nodes may request.", unit="MiB")
    max_resources: dict[str, int] = key(
        MappingOf(WHOLE),
        {},
        "Limits by resource, e.g. ``ephemeral-storage``; those of the provider count for resources that are not named.",
    )
    default_label_cpu: int | None = _amount("``cpu`` of labels without it.")
    default_label_memory: int | None = _amount("``memory`` of labels without it.", unit="MiB")
    default_label_storage: int | None = _amount("``storage`` of labels without it.", unit="MB")
    default_label_cpu_limit: int | None = _amount("``cpu-limit`` of labels without it.")
    default_label_memory_limit: int | None = _amount("``memory-limit`` of labels without it.", unit="MiB")
    default_label_storage_limit: int | None = _amount("``storage-limit`` of labels without it.", unit="MB")
    default_label_extra_resources: dict[str, int] = key(
        MappingOf(WHOLE), {}, "``extra-resources`` of labels without it."
    )

    def load(self, pool_config: dict[str, Any]) -> None:
        super().load(pool_config)
        if pool_config.get("max-servers") is None:
            # The first two are of OpenShift.
            names = (getattr(self.provider, name, None) for name in ("max_pods", "max_projects", "max_servers"))
            self.max_servers = next(found for found in names if found is not None)
        self.max_resources = {**self.provider.max_resources, **self.max_resources}


class KubernetesPool(AnyPodPool):
    """A slice of the cluster. Namespaces are named ``<pool>-<node id>``."""

    labels: dict[str, KubernetesLabel] = key(Sections(KubernetesLabel), None, "What nodes are made of.")


PodPoolT = TypeVar("PodPoolT", bound=AnyPodPool)


class AnyPodProvider(LaunchingProviderConfig[PodPoolT], Generic[PodPoolT]):
    """Keys of a provider of any driver that makes pods. The driver declares ``context`` and ``_pools``."""

    checks: ClassVar[tuple[Any, ...]] = (usable_provider,)
    # Nothing is contacted over SSH.
    without_keys: ClassVar[tuple[str, ...]] = ("boot-timeout",)

    context: str | None
    #: Keys of ``driver: kubernetes`` only.
    shared_roles: bool = False
    cluster_room: bool = False
    launch_timeout: float = key(
        SECONDS,
        300.0,
        "Limit of one attempt, until the pod runs. What cannot mend itself, such as an image that is not there, "
        "ends it earlier.",
    )
    max_servers: float = key(WHOLE, math.inf, "For pools without it.", default_text="unlimited")
    max_cores: int | None = key(WHOLE, None, "For pools without it.", default_text="unlimited")
    max_ram: int | None = key(WHOLE, None, "For pools without it.", unit="MiB", default_text="unlimited")
    max_resources: dict[str, int] = key(MappingOf(WHOLE), {}, "Of pools: limits by resource.", default_text="unlimited")

    @classmethod
    def without_effect(cls, section: dict[str, Any]) -> Iterator[tuple[list[Hashable], str]]:
        """Labels that the API refuses at each launch."""
        return labels_not_offered(section, section_class(section_class(cls, "pools"), "labels").checks)


class KubernetesProviderConfig(AnyPodProvider[KubernetesPool]):
    """One ``providers[]`` section with ``driver: kubernetes``."""

    context: str | None = key(
        TEXT.or_null(),
        None,
        "Of the kubeconfig, which says how to reach a cluster and who we are there.",
        default_text="the current one; without a kubeconfig the cluster that the launcher runs in",
    )
    shared_roles: bool = key(
        FLAG,
        True,
        "Nodes get their rights from the cluster roles ``nodepool-zuul`` and ``nodepool-zuul-restricted``, which are "
        "made if they are missing, and not from a role in each namespace: one call less a node. The job of a pod "
        "without ``spec`` uses the account ``default``, which the cluster makes: another call less. ``false``: a role "
        "and an account in each namespace, as Nodepool 11.0.0 makes them. If the launcher may not make cluster roles, "
        "there is a role in each namespace, too.",
    )
    cluster_room: bool = key(
        FLAG,
        False,
        "Launch no more than the cluster has room for: what its nodes can allocate without what others request. "
        "Not for a cluster that grows by itself.",
    )
    _pools: dict[str, KubernetesPool] = key(Sections(KubernetesPool), None, "The pools of the provider.", name="pools")


# What Kubernetes takes as names and labels. Pure functions.

#: Most characters of a name in DNS, and of a label's value.
MAX_CHARACTERS: Final = 63
#: Characters of a pool's name: ``-`` and ten digits of the node's id follow.
MAX_POOL_CHARACTERS: Final = MAX_CHARACTERS - 11

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_FOREIGN: Final = re.compile(r"[^-A-Za-z0-9_.]")

DNS_LABEL_TEXT: Final = "small letters, digits and hyphens, a letter or digit at both ends"
LABEL_VALUE_TEXT: Final = f"at most {MAX_CHARACTERS} letters, digits, '-', '_' and '.', a letter or digit at both ends"


def is_dns_label(name: str, longest: int = MAX_CHARACTERS) -> bool:
    """May a namespace, or a container, have the name?"""
    return len(name) <= longest and _DNS_LABEL.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """May a label of an object have the value?"""
    return len(value) <= MAX_CHARACTERS and _LABEL_VALUE.fullmatch(value) is not None


def is_key(name: str) -> bool:
    """May a label or an annotation have the name: ``name``, or ``domain/name``?"""
    domain, slash, rest = name.rpartition("/")
    if slash and (len(domain) > 253 or _DNS_SUBDOMAIN.fullmatch(domain) is None):
        return False
    return bool(rest) and is_label_value(rest)


def as_text(value: Any) -> str:
    """A value of YAML as Kubernetes takes it: ``true``, not ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def mangled(value: str) -> str:
    """The nearest value that a label may have.

    Each other character becomes ``_``; what is no letter or digit is cut off at both ends; 63 characters are kept.
    """
    return _FOREIGN.sub("_", value).strip("-_.")[:MAX_CHARACTERS].rstrip("-_.")
