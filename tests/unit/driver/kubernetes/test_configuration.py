# SPDX-License-Identifier: Apache-2.0
"""Configuration of the three drivers (reference/configuration), the objects that are made of it, and limits."""

from __future__ import annotations

import copy
import logging
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from nodepool.driver.kubernetes import KubernetesDriver
from nodepool.driver.kubernetes.config import (
    KubernetesProviderConfig,
    as_text,
    is_dns_label,
    is_key,
    is_label_value,
    mangled,
)
from nodepool.driver.kubernetes.objects import (
    amount_of,
    labels_of,
    of_cluster,
    of_quotas,
    pod,
    requests_of,
    role,
    role_binding,
    together,
    token_secret,
)
from nodepool.driver.openshift import OpenShiftDriver
from nodepool.driver.openshiftpods import OpenShiftPodsDriver
from nodepool.logconfig import ContextLogger
from nodepool.model.quota import QuotaInformation
from tests.support.provider_sections import load_section, problems_of_section
from tests.unit.driver.kubernetes.stand_in import METADATA, label_of

LOG = ContextLogger(logging.getLogger("test"))
DRIVERS: dict[str, Any] = {
    "kubernetes": KubernetesDriver,
    "openshift": OpenShiftDriver,
    "openshiftpods": OpenShiftPodsDriver,
}
every_driver = pytest.mark.parametrize("driver", DRIVERS)
#: A section with every key that 11.0.0 takes.
EVERYTHING = """
provider: {max-concurrency: 5, priority: 7, context: ci, launch-retries: 2, launch-timeout: 600, max-servers: 50,
  max-cores: 100, max-ram: 200000, max-resources: {ephemeral-storage: 1000, nvidia.com/gpu: 4}}
pool: {max-servers: 10, max-cores: 20, max-ram: 4096, priority: 3, node-attributes: {a: 1},
  max-resources: {ephemeral-storage: 500, nvidia.com/gpu: 2}}
defaults: {default-label-cpu: 1, default-label-memory: 512, default-label-storage: 100, default-label-cpu-limit: 4,
  default-label-memory-limit: 8192, default-label-storage-limit: 200, default-label-extra-resources: {licenses: 1}}
label: {image: docker.io/debian, image-pull: Always, python-path: /usr/bin/python3, shell-type: sh, cpu: 2,
  memory: 1024, storage: 10, cpu-limit: 3, memory-limit: 2048, storage-limit: 20, gpu: 0.5, privileged: true,
  gpu-resource: nvidia.com/gpu, env: [{name: A, value: ""}], scheduler-name: mine, volumes: [{name: v, emptyDir: {}}],
  volume-mounts: [{name: v, mountPath: /v}], dynamic-labels: {tenant: "{request.tenant_name}"},
  annotations: {note: "any text, really"}, extra-resources: {licenses: 2}}
texts: {node-selector: {disk: ssd, fast: true}, labels: {team: ci, example.com/year: 2026}}
"""
PROVIDER, POOL, DEFAULTS, LABEL, TEXTS = yaml.safe_load(EVERYTHING).values()


def everything(driver: str) -> dict[str, Any]:
    """Of a driver."""
    labels: list[dict[str, Any]] = [
        {"name": "pod-debian", "type": "pod", **LABEL, **TEXTS},
        {"name": "defaults", "type": "any" if driver == "kubernetes" else "pod", "image": "docker.io/debian"},
        {"name": "whole", "type": "pod", "spec": {"containers": []}, "labels": {"a": "b"}},
        {"name": "Empty_1", "type": "namespace" if driver == "kubernetes" else "project"},
    ]
    pool = {"name": "main", **POOL, **DEFAULTS, "labels": labels}
    section = {"name": "cluster", "driver": driver, **PROVIDER, "pools": [pool, {"name": "other"}]}
    if driver != "kubernetes":
        section["max-projects"] = 30
        labels[0]["image-pull-secrets"] = [{"name": "one"}, "two"]
    if driver == "openshiftpods":
        section["max-pods"] = 20
        labels.pop()
        for label in labels:
            del label["type"]
    return copy.deepcopy(section)


def load(section: dict[str, Any]) -> Any:
    return load_section(DRIVERS[section["driver"]](), section)


def read(config: Any, keys: dict[str, Any]) -> dict[str, Any]:
    """What the attributes that are called like the keys say."""
    return {key: getattr(config, key.replace("-", "_")) for key in keys}


@every_driver
def test_every_key(tmp_path: Path, driver: str) -> None:
    """reference/configuration: all keys are read, and accepted; 6: a section that has not changed is equal."""
    section = everything(driver)
    assert problems_of_section(tmp_path, section) == []
    config = load(section)
    assert read(config, PROVIDER) == PROVIDER
    main, other = config.pools["main"], config.pools["other"]
    assert read(main, POOL) == POOL
    names = ("max-cores", "max-ram", "max-resources", "priority")
    assert read(other, dict.fromkeys(names)) == {name: PROVIDER[name] for name in names}
    label, defaults = main.labels["pod-debian"], main.labels["defaults"]
    assert read(label, LABEL) == LABEL
    assert label.labels == {"team": "ci", "example.com/year": "2026"}, "texts, as Kubernetes takes them"
    assert label.node_selector == {"disk": "ssd", "fast": "true"}
    # What a label does not say is the pool's default.
    wanted = {name.removeprefix("default-label-"): value for name, value in DEFAULTS.items()}
    assert read(defaults, wanted) == wanted
    found = (defaults.image_pull, defaults.python_path, defaults.privileged, defaults.shell_type, defaults.env)
    assert found == ("IfNotPresent", "auto", None, None, [])
    assert main.labels["whole"].spec == {"containers": []}
    assert [each.is_pod for each in main.labels.values()] == [True, True, True, False][: len(main.labels)]
    assert not label.host_key_checking, "nothing is contacted over SSH"
    if driver != "kubernetes":
        assert label.image_pull_secrets == [{"name": "one"}, {"name": "two"}]
    changed = everything(driver)
    changed["pools"][0]["labels"][0]["env"][0]["value"] = "b"
    assert config == load(everything(driver)) != load(changed)


@pytest.mark.parametrize(
    ("driver", "provider", "pool", "limit"),
    [
        *((driver, {}, {}, math.inf) for driver in DRIVERS),
        *((driver, {"max-servers": 5}, {"max-servers": 3}, 3) for driver in DRIVERS),
        *((driver, {"max-projects": 4, "max-servers": 5}, {}, 4) for driver in ("openshift", "openshiftpods")),
        ("openshift", {"max-projects": 4}, {"max-servers": 3}, 3),
        ("openshiftpods", {"max-pods": 3, "max-projects": 4}, {}, 3),
    ],
)
def test_limit_of_nodes(driver: str, provider: Any, pool: Any, limit: float) -> None:
    """reference/configuration: ``max-projects`` and ``max-pods`` are other names; defaults are those of 11.0.0."""
    config = load({"name": "o", "driver": driver, "context": "c", **provider, "pools": [{"name": "main", **pool}]})
    found = config.pools["main"]
    assert found.max_servers == limit
    assert (config.launch_retries, config.launch_timeout) == (3, 300)
    assert (found.max_cores, found.max_ram, found.max_resources) == (None, None, {})


@pytest.mark.parametrize(
    ("label", "pool", "expected"),
    [
        ({"cpu": 1, "cpu-limit": 2}, {"default-label-cpu-limit": 3, "default-label-cpu": 4}, (1, 2)),
        ({"cpu": 1}, {"default-label-cpu-limit": 3, "default-label-cpu": 4}, (1, 3)),
        ({"cpu": 1}, {"default-label-cpu": 4}, (1, 1)),
        ({}, {"default-label-cpu": 4}, (4, 4)),
        ({}, {}, (None, None)),
        ({"cpu": 0}, {}, (None, None)),
    ],
)
def test_order_of_limits(label: dict[str, Any], pool: dict[str, int], expected: tuple[int | None, int | None]) -> None:
    """reference/configuration: label's limit, pool's limit, label's request, pool's request, none."""
    found = label_of(pool, **label) if "labels" not in pool else None
    assert found is not None
    assert (found.cpu, found.cpu_limit) == expected


def put(*path: Any, **keys: Any) -> Any:
    """A change of a section: these keys at a place in it; None = without the key."""

    def change(section: Any) -> None:
        for step in path:
            section = section[step]
        for name, value in keys.items():
            if value is None:
                del section[name]
            else:
                section[name] = value

    return change


MAIN, FIRST = ("pools", 0), ("pools", 0, "labels", 0)


@pytest.mark.parametrize(
    ("driver", "change", "key", "text"),
    [
        ("kubernetes", put("max-resources", a="many"), "max-resources.a", "whole number"),
        ("kubernetes", put(**{"boot-timeout": 1}), "boot-timeout", "unknown"),
        ("kubernetes", put(name="my cluster"), "name", "label's value"),
        ("kubernetes", put("pools", 1, name="Main"), "pools[1].name", "small letters"),
        ("kubernetes", put("pools", 1, name="a" * 53), "pools[1].name", "52 characters"),
        ("kubernetes", put(*MAIN, **{"default-label-cpu": -1}), "default-label-cpu", "0 or more"),
        ("kubernetes", put(*FIRST, type=None), "labels[0].type", "required"),
        ("kubernetes", put(*FIRST, image=None), "labels[0]", "needs an image"),
        ("kubernetes", put(*FIRST, name="Pod_1"), "labels[0].name", "small letters"),
        ("kubernetes", put(*MAIN, "labels", 3, name="a b"), "labels[3].name", "label's value"),
        ("kubernetes", put(*FIRST, **{"cpu-limit": 1}), "labels[0].cpu-limit", "less than the request"),
        ("kubernetes", put(*MAIN, "labels", 1, cpu=5), "labels[1].cpu", "less than the request"),
        ("kubernetes", put(*FIRST, "env", 0, value=None), "env[0].value", "required"),
        ("kubernetes", put(*FIRST, "labels", **{"a/b/c": "x"}), "labels[0].labels.a/b/c", "no name"),
        ("kubernetes", put(*FIRST, "labels", a="x/y"), "labels[0].labels.a", "no value"),
        ("kubernetes", put(*FIRST, "annotations", **{"-": "x"}), "labels[0].annotations.-", "no name"),
        ("kubernetes", put(*FIRST, "dynamic-labels", **{"a b": "x"}), "labels[0].dynamic-labels.a b", "no name"),
        ("kubernetes", put(*MAIN, "labels", 2, image="x"), "labels[2].image", "no effect beside"),
        ("kubernetes", put(*FIRST, cpus=1), "labels[0].cpus", "unknown"),
        ("openshift", put(context=None), "context", "required"),
        ("openshift", put(*MAIN, "labels", 3, type="pod"), "labels[3].name", "small letters"),
        ("openshift", put(*FIRST, **{"image-pull-secrets": "x"}), "image-pull-secrets", "list"),
        ("openshiftpods", put(*FIRST, type="pod"), "labels[0].type", "unknown"),
        ("openshiftpods", put(*FIRST, image=None), "labels[0]", "needs an image"),
    ],
)
def test_what_is_wrong(tmp_path: Path, driver: str, change: Any, key: str, text: str) -> None:
    """reference/configuration: refused with file, line, key and what is allowed."""
    section = everything(driver)
    change(section)
    where, _, reason = problems_of_section(tmp_path, section)[0].partition(": ")
    assert where.endswith(key)
    assert text in reason


def test_daemons_go_on_without_a_label() -> None:
    """A label that the API would refuse at each launch does not keep the others from being served."""
    section = everything("kubernetes")
    put(*FIRST, image=None)(section)
    put(*FIRST, "labels", **{"a b": "c d"})(section)
    ((path, text),) = KubernetesProviderConfig.without_effect(section)
    assert path == ["pools", 0, "labels", 0, "labels", "a b"]
    assert text.endswith("a daemon does not offer the label here")


def test_names() -> None:
    """What the API takes as a name, the key of a label, and its value; a dynamic value is made one."""
    for name, good in (("a", 1), ("pod-1", 1), ("Pod", 0), ("a_b", 0), ("-a", 0), ("a" * 64, 0)):
        assert is_dns_label(name) == good
    for name, good in (("team", 1), ("example.com/team", 1), ("a/b/c", 0), ("/a", 0), ("a/", 0), ("", 0)):
        assert is_key(name) == good
    texts = {"as-it.is_0": "as-it.is_0", "org/project": "org_project", "--x--": "x", "": "", "ä": ""}
    for value, expected in (*texts.items(), ("a" * 62 + "-b", "a" * 62)):
        assert mangled(value) == expected
        assert is_label_value(expected)
    assert [as_text(value) for value in (True, 12, "x")] == ["true", "12", "x"]


# -- objects of a node --


def test_pod() -> None:
    """KU-4: one container, named like the label, whose loop is one argument; it is not started again. KU-6: quantities
    in cores, MiB and MB, a GPU as a text with two decimals; what is not set is left out.
    """
    keys: Any = {"cpu": 2, "memory": 512, "storage": 10, "gpu": 0.5, "gpu-resource": "nvidia.com/gpu"}
    label = label_of(privileged=True, **{**keys, "cpu-limit": 4})
    spec = pod("pod", label, {"a": "b"})["spec"]
    (container,) = spec["containers"]
    resources = container.pop("resources")
    assert {**spec, "containers": []} == {"containers": [], "restartPolicy": "Never"}
    args = ["while true; do sleep 30; done;"]
    assert (container["name"], container["command"], container["args"]) == ("pod", ["/bin/sh", "-c"], args)
    assert (container["imagePullPolicy"], container["securityContext"]) == ("IfNotPresent", {"privileged": True})
    requests = {"cpu": "2", "memory": "512Mi", "ephemeral-storage": "10M", "nvidia.com/gpu": "0.50"}
    assert resources["requests"] == requests
    assert resources["limits"]["cpu"] == "4"
    assert "resources" not in pod("pod", label_of(gpu=1), {})["spec"]["containers"][0]
    more = {key: LABEL[key] for key in ("scheduler-name", "volumes", "volume-mounts")}
    made = pod("pod", label_of(**more, **{"node-selector": {"disk": "ssd"}}), {})["spec"]
    assert (made["schedulerName"], made["volumes"], made["nodeSelector"]) == (
        *("mine", LABEL["volumes"], {"disk": "ssd"}),
    )
    assert made["containers"][0]["volumeMounts"] == LABEL["volume-mounts"]
    # KU-5: a spec is used as it is, with its name, labels and annotations, and nothing added.
    whole = {"containers": [{"name": "other", "image": "x"}]}
    made = pod("pod", label_of(spec=whole, annotations={"note": "1"}), {})
    assert (made["spec"], made["metadata"]) == (whole, {"name": "pod", "labels": {}, "annotations": {"note": "1"}})


def test_labels_of_a_node() -> None:
    """KU-7: the label's, then dynamic ones, then ours; a bad format is left out, and the node made all the same."""
    dynamic = {"dynamic-labels": {"t": "{request.tenant_name}", "bad": "{request.nothing}"}}
    request: Any = SimpleNamespace(tenant_name="/a tenant!")
    found = labels_of(label_of(labels={"a": "1", "nodepool_node_id": "no"}, **dynamic), METADATA, request, LOG)
    assert found == {"a": "1", "t": "a_tenant", **METADATA, "nodepool_node_label": "pod"}


@pytest.mark.parametrize(("is_pod", "name"), [(True, "zuul-restricted"), (False, "zuul")])
def test_roles(is_pod: bool, name: str) -> None:
    """KU-2, KU-3, OS-2: rules name existing resources, in the groups that have them; a secret asks for the token."""
    made = role(METADATA, is_pod)
    rules = {(rule["apiGroups"][0], resource) for rule in made["rules"] for resource in rule["resources"]}
    assert made["metadata"]["name"] == name
    assert ("", "pods/log") in rules
    assert not any(resource == "pods/logs" for _, resource in rules)
    assert (("apps", "deployments") in rules) is (("batch", "jobs") in rules) is not is_pod
    binding = role_binding("main-7", METADATA, is_pod)
    assert binding["roleRef"]["name"] == name
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "zuul-worker", "namespace": "main-7"}]
    assert token_secret(METADATA)["type"] == "kubernetes.io/service-account-token"


# -- what a cluster, or a namespace, has room for --


def running(name: str = "p", phase: str = "Running", node: str = "one", **requests: str) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": requests}}
    spec = {"nodeName": node, "containers": [container]}
    return {"metadata": {"name": name, "labels": {}}, "spec": spec, "status": {"phase": phase}}


def machine(name: str = "one", ready: str = "True", **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "10G", "nvidia.com/gpu": "2"}
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable, "conditions": conditions}}


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": used or {}}}


def compute(found: QuotaInformation) -> dict[str, float]:
    return {name: amount for name, amount in found.quota["compute"].items() if math.isfinite(amount)}


def test_requests_of_a_pod() -> None:
    """KU-6: containers together; those that run before count where they need more; what is no quantity does not."""
    for text, amount in (("500m", 0.5), ("2", 2), (3, 3), ("1Ki", 1024), ("2e3", 2000), ("1.5G", 1.5e9)):
        assert amount_of(text) == amount
    made = running(cpu="500m", memory="64Mi")
    made["spec"]["containers"].append({"name": "d", "resources": {"requests": {"cpu": "1"}}})
    made["spec"]["containers"].append({"name": "e", "resources": {"requests": {"memory": "much"}}})
    made["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "1", "memory": "128Mi"}}}]
    assert requests_of(made) == {"instances": 1, "cores": 1.5, "ram": 128}


@pytest.mark.parametrize(
    ("nodes", "pods", "of_ours", "room"),
    [
        # What nodes can allocate, without what others request there.
        (
            [machine(), machine("two")],
            [running(cpu="1", memory="1Gi"), running(node="two", cpu="500m"), running(node="three", cpu="4")],
            {},
            {"cores": 6.5, "ram": 15 * 1024, "instances": 218, "ephemeral-storage": 20000, "nvidia.com/gpu": 4},
        ),
        # The framework counts what a label says; only what a pod of ours requests beyond that is used by others.
        (
            [machine()],
            [running(cpu="2", memory="1Gi")],
            {"instances": 1, "cores": 1, "ram": 1024},
            {"cores": 3, "ram": 8 * 1024, "instances": 110},
        ),
        *(([machine()], [running(phase=phase, cpu="4")], {}, {"cores": 4}) for phase in ("Succeeded", "Failed")),
        # Nodes that take no pods: neither their room counts, nor what runs there. A taint may only advise.
        *(
            ([machine(), other], [running(node="two", cpu="3")], {}, {"cores": 4})
            for other in (
                *(machine("two", "False"), machine("two", unschedulable=True)),
                machine("two", taints=[{"key": "k", "effect": "NoSchedule"}]),
            )
        ),
        ([machine(taints=[{"key": "k", "effect": "PreferNoSchedule"}])], [], {}, {"cores": 4}),
    ],
)
def test_room_of_a_cluster(nodes: list[Any], pods: list[Any], of_ours: Any, room: dict[str, float]) -> None:
    """KU-13."""
    assert room.items() <= compute(of_cluster(nodes, pods, lambda _: of_ours)).items()


@pytest.mark.parametrize(
    ("quotas", "pods", "room"),
    [
        # The limit without what others use; pods of ours are in what is used.
        (
            [quota({"pods": "10", "requests.cpu": "8", "memory": "4Gi"}, {"pods": "5", "requests.cpu": "3"})],
            [running(cpu="1"), running("q", cpu="1"), running("ended", "Failed", cpu="1")],
            {"instances": 7, "cores": 7, "ram": 4096},
        ),
        # Each holds by itself; one with a scope may not concern our pods.
        ([quota({"pods": "10"}), quota({"count/pods": "4", "limits.cpu": "1"})], [], {"instances": 4}),
        ([quota({"pods": "1"}, scopes=["BestEffort"])], [], {}),
    ],
)
def test_quota_of_a_namespace(quotas: list[Any], pods: list[Any], room: dict[str, float]) -> None:
    """KU-13: several namespaces together; what one of them does not limit is not limited."""
    assert compute(of_quotas(quotas, pods)) == room
    found = together([of_quotas(quotas, pods), of_quotas([quota({"pods": "5"})], [])])
    assert compute(found) == ({"instances": room["instances"] + 5} if room else {})
    assert compute(together([])) == {}
