# SPDX-License-Identifier: Apache-2.0
"""Configuration of the three drivers (reference/configuration), the objects that are made of it, and limits."""

from __future__ import annotations

import copy
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import models

from nodepool.driver.kubernetes import KubernetesDriver
from nodepool.driver.kubernetes.config import (
    KubernetesProviderConfig,
    as_text,
    is_dns_label,
    is_key,
    is_label_value,
    mangled,
)
from nodepool.driver.kubernetes.objects import of_cluster, of_quotas, pod, requests_of, together
from nodepool.driver.openshift import OpenShiftDriver
from nodepool.driver.openshiftpods import OpenShiftPodsDriver
from nodepool.logconfig import ContextLogger
from nodepool.model.node import QuotaInformation
from tests.support.provider_sections import load_section, problems_of_section
from tests.support.tables import driver_table
from tests.unit.driver.kubernetes.stand_in import label_of

LOG = ContextLogger(logging.getLogger("test"))
DRIVERS: dict[str, Any] = {
    "kubernetes": KubernetesDriver,
    "openshift": OpenShiftDriver,
    "openshiftpods": OpenShiftPodsDriver,
}
every_driver = pytest.mark.parametrize("driver", DRIVERS)
#: A section with every key that 11.0.0 takes.
PROVIDER, POOL, DEFAULTS, LABEL, TEXTS = driver_table("kubernetes", "everything").values()


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


@pytest.mark.parametrize(("driver", "provider", "pool", "limit"), driver_table("kubernetes", "limits_of_nodes"))
def test_limit_of_nodes(driver: str, provider: Any, pool: Any, limit: float) -> None:
    """reference/configuration: ``max-projects`` and ``max-pods`` are other names; defaults are those of 11.0.0."""
    config = load({"name": "o", "driver": driver, "context": "c", **provider, "pools": [{"name": "main", **pool}]})
    found = config.pools["main"]
    assert found.max_servers == limit
    assert (config.launch_retries, config.launch_timeout) == (3, 300)
    assert (found.max_cores, found.max_ram, found.max_resources) == (None, None, {})


@pytest.mark.parametrize(("label", "pool", "expected"), driver_table("kubernetes", "order_of_limits"))
def test_order_of_limits(label: dict[str, Any], pool: dict[str, int], expected: list[int | None]) -> None:
    """reference/configuration: label's limit, pool's limit, label's request, pool's request, none."""
    found = label_of(pool, **label)
    assert [found.cpu, found.cpu_limit] == expected


def put(section: Any, path: list[Any], keys: dict[str, Any]) -> None:
    """Changes keys at a place of a section; None = without the key."""
    for step in path:
        section = section[step]
    section.update(keys)
    for name in [name for name, value in keys.items() if value is None]:
        del section[name]


@pytest.mark.parametrize(("driver", "change", "key", "text"), driver_table("kubernetes", "wrong"))
def test_what_is_wrong(tmp_path: Path, driver: str, change: Any, key: str, text: str) -> None:
    """reference/configuration: refused with file, line, key and what is allowed."""
    section = everything(driver)
    put(section, *change)
    where, _, reason = problems_of_section(tmp_path, section)[0].partition(": ")
    assert where.endswith(key)
    assert text in reason


def test_daemons_go_on_without_a_label() -> None:
    """A label that the API would refuse at each launch does not keep the others from being served."""
    section = everything("kubernetes")
    section["pools"][0]["labels"][0].update(image="", labels={"a b": "c d"})
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
    assert (made["schedulerName"], made["volumes"]) == ("mine", LABEL["volumes"])
    assert made["nodeSelector"] == {"disk": "ssd"}
    for model, body in ((models.V1PodSpec, made), (models.V1Container, {**container, **made["containers"][0]})):
        assert set(body) <= set(model.attribute_map.values()), "keys of the API, as its own description has them"
    assert made["containers"][0]["volumeMounts"] == LABEL["volume-mounts"]
    # KU-5: a spec is used as it is, with its name, labels and annotations, and nothing added.
    whole = {"containers": [{"name": "other", "image": "x"}]}
    made = pod("pod", label_of(spec=whole, annotations={"note": "1"}), {})
    assert (made["spec"], made["metadata"]) == (whole, {"name": "pod", "labels": {}, "annotations": {"note": "1"}})


# -- what a cluster, or a namespace, has room for --


def running(name: str = "p", phase: str = "Running", node: str = "one", **requests: Any) -> dict[str, Any]:
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
        assert requests_of(running(cpu=text))["cores"] == amount
    made = running(cpu="500m", memory="64Mi")
    made["spec"]["containers"].append({"name": "d", "resources": {"requests": {"cpu": "1"}}})
    made["spec"]["containers"].append({"name": "e", "resources": {"requests": {"memory": "much"}}})
    made["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "1", "memory": "128Mi"}}}]
    assert requests_of(made) == {"instances": 1, "cores": 1.5, "ram": 128}


@pytest.mark.parametrize(("nodes", "pods", "of_ours", "room"), driver_table("kubernetes", "room_of_clusters"))
def test_room_of_a_cluster(nodes: list[Any], pods: list[Any], of_ours: Any, room: dict[str, float]) -> None:
    """KU-13."""
    found = of_cluster([machine(**one) for one in nodes], [running(**one) for one in pods], lambda _: of_ours)
    assert room.items() <= compute(found).items()


@pytest.mark.parametrize(("quotas", "pods", "room"), driver_table("kubernetes", "quotas"))
def test_quota_of_a_namespace(quotas: list[Any], pods: list[Any], room: dict[str, float]) -> None:
    """KU-13: several namespaces together; what one of them does not limit is not limited."""
    own = of_quotas([quota(**one) for one in quotas], [running(**one) for one in pods])
    assert compute(own) == room
    found = together([own, of_quotas([quota({"pods": "5"})], [])])
    assert compute(found) == ({"instances": room["instances"] + 5} if room else {})
    assert compute(together([])) == {}
