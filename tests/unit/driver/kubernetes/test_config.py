# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.kubernetes.config` and ``config_checks`` (reference/configuration)."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.kubernetes import KubernetesDriver
from nodepool.driver.kubernetes.config import KubernetesProviderConfig
from tests.support.provider_sections import load_section, problems_of_section

EVERYTHING: dict[str, Any] = {
    "name": "cluster",
    "driver": "kubernetes",
    "max-concurrency": 5,
    "priority": 7,
    "context": "ci",
    "launch-retries": 2,
    "launch-timeout": 600,
    "max-servers": 50,
    "max-cores": 100,
    "max-ram": 200000,
    "max-resources": {"ephemeral-storage": 1000, "nvidia.com/gpu": 4},
    "pools": [
        {
            "name": "main",
            "max-servers": 10,
            "max-cores": 20,
            "max-ram": 4096,
            "max-resources": {"nvidia.com/gpu": 2},
            "node-attributes": {"a": 1},
            "priority": 3,
            "default-label-cpu": 1,
            "default-label-memory": 512,
            "default-label-storage": 100,
            "default-label-cpu-limit": 4,
            "default-label-memory-limit": 8192,
            "default-label-storage-limit": 200,
            "default-label-extra-resources": {"licenses": 1},
            "labels": [
                {
                    "name": "pod-debian",
                    "type": "pod",
                    "image": "docker.io/debian",
                    "image-pull": "Always",
                    "python-path": "/usr/bin/python3",
                    "shell-type": "sh",
                    "cpu": 2,
                    "memory": 1024,
                    "storage": 10,
                    "cpu-limit": 3,
                    "memory-limit": 2048,
                    "storage-limit": 20,
                    "gpu": 0.5,
                    "gpu-resource": "nvidia.com/gpu",
                    "env": [{"name": "A", "value": ""}],
                    "node-selector": {"disk": "ssd", "fast": True},
                    "privileged": True,
                    "scheduler-name": "mine",
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "volume-mounts": [{"name": "v", "mountPath": "/v"}],
                    "labels": {"team": "ci", "example.com/year": 2026},
                    "dynamic-labels": {"tenant": "{request.tenant_name}"},
                    "annotations": {"note": "any text, really"},
                    "extra-resources": {"licenses": 2},
                },
                {"name": "defaults", "type": "any", "image": "docker.io/debian"},
                {"name": "whole", "type": "pod", "spec": {"containers": []}, "labels": {"a": "b"}},
                {"name": "Empty_1", "type": "namespace"},
            ],
        },
        {"name": "other"},
    ],
}


def load(data: dict[str, Any]) -> KubernetesProviderConfig:
    made: KubernetesProviderConfig = load_section(KubernetesDriver(), data)
    return made


def test_every_key_of_a_provider() -> None:
    """reference/configuration: all keys are read."""
    config = load(EVERYTHING)
    assert (config.max_concurrency, config.priority, config.context) == (5, 7, "ci")
    assert (config.launch_retries, config.launch_timeout) == (2, 600)
    assert (config.max_servers, config.max_cores, config.max_ram) == (50, 100, 200000)
    assert not config.manage_images


def test_every_key_of_a_pool() -> None:
    """reference/configuration: all keys are read; what a pool does not say is the provider's."""
    config = load(EVERYTHING)
    main, other = config.pools["main"], config.pools["other"]
    assert (main.max_servers, main.max_cores, main.max_ram) == (10, 20, 4096)
    assert main.max_resources == {"ephemeral-storage": 1000, "nvidia.com/gpu": 2}
    assert (main.node_attributes, main.priority) == ({"a": 1}, 3)
    assert (other.max_servers, other.max_cores, other.max_ram, other.priority) == (50, 100, 200000, 7)
    assert other.max_resources == config.max_resources


def test_every_key_of_a_label() -> None:
    """reference/configuration: all keys are read; values become texts as Kubernetes takes them."""
    label = load(EVERYTHING).pools["main"].labels["pod-debian"]
    assert (label.type, label.is_pod, label.image, label.image_pull) == ("pod", True, "docker.io/debian", "Always")
    assert (label.python_path, label.shell_type) == ("/usr/bin/python3", "sh")
    assert (label.cpu, label.memory, label.storage) == (2, 1024, 10)
    assert (label.cpu_limit, label.memory_limit, label.storage_limit) == (3, 2048, 20)
    assert (label.gpu, label.gpu_resource, label.env) == (0.5, "nvidia.com/gpu", [{"name": "A", "value": ""}])
    assert (label.node_selector, label.privileged) == ({"disk": "ssd", "fast": "true"}, True)
    assert (label.scheduler_name, label.volumes) == ("mine", [{"name": "v", "emptyDir": {}}])
    assert label.volume_mounts == [{"name": "v", "mountPath": "/v"}]
    assert label.labels == {"team": "ci", "example.com/year": "2026"}
    assert label.dynamic_labels == {"tenant": "{request.tenant_name}"}
    assert (label.annotations, label.extra_resources) == ({"note": "any text, really"}, {"licenses": 2})
    assert not label.host_key_checking, "nothing is contacted over SSH"


def test_what_a_label_does_not_say() -> None:
    """reference/configuration: the pool's default; a type that is not ``namespace`` is a pod."""
    labels = load(EVERYTHING).pools["main"].labels
    label = labels["defaults"]
    assert (label.cpu, label.memory, label.storage) == (1, 512, 100)
    assert (label.cpu_limit, label.memory_limit, label.storage_limit) == (4, 8192, 200)
    assert (label.extra_resources, label.image_pull, label.python_path) == ({"licenses": 1}, "IfNotPresent", "auto")
    assert (label.is_pod, label.privileged, label.shell_type, label.env) == (True, None, None, [])
    assert (labels["whole"].spec, labels["Empty_1"].is_pod) == ({"containers": []}, False)


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
def test_order_of_limits(label: dict[str, int], pool: dict[str, int], expected: tuple[int | None, int | None]) -> None:
    """reference/configuration: label's limit, pool's limit, label's request, pool's request, none."""
    section = {"name": "main", **pool, "labels": [{"name": "a", "type": "pod", "image": "i", **label}]}
    found = load({"name": "cluster", "driver": "kubernetes", "pools": [section]}).pools["main"].labels["a"]
    assert (found.cpu, found.cpu_limit) == expected


def test_defaults() -> None:
    """reference/configuration: those of Nodepool 11.0.0."""
    config = load({"name": "cluster", "driver": "kubernetes", "pools": [{"name": "main"}]})
    pool = config.pools["main"]
    assert (config.context, config.launch_retries, config.launch_timeout) == (None, 3, 300)
    assert (pool.max_servers, pool.max_cores, pool.max_ram, pool.max_resources) == (math.inf, None, None, {})


def test_equal_when_loaded_twice() -> None:
    """6: a reload leaves a provider alone whose section has not changed."""
    changed = copy.deepcopy(EVERYTHING)
    assert load(EVERYTHING) == load(changed)
    changed["pools"][0]["labels"][0]["env"][0]["value"] = "b"
    assert load(EVERYTHING) != load(changed)


# -- what is wrong --


def test_released_configuration_is_accepted(tmp_path: Path) -> None:
    """reference/configuration: with every key that 11.0.0 takes."""
    assert problems_of_section(tmp_path, EVERYTHING) == []


def _label(data: dict[str, Any], index: int = 0) -> dict[str, Any]:
    label: dict[str, Any] = data["pools"][0]["labels"][index]
    return label


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        (lambda d: d.update({"max-resources": {"a": "many"}}), "max-resources.a", "whole number"),
        (lambda d: d.update({"boot-timeout": 1}), "boot-timeout", "unknown"),
        (lambda d: d.update({"name": "my cluster"}), "name", "label's value"),
        (lambda d: d["pools"][1].update({"name": "Main"}), "pools[1].name", "small letters"),
        (lambda d: d["pools"][1].update({"name": "a" * 53}), "pools[1].name", "52 characters"),
        (lambda d: d["pools"][0].update({"default-label-cpu": -1}), "default-label-cpu", "0 or more"),
        (lambda d: _label(d).pop("type"), "labels[0].type", "required"),
        (lambda d: _label(d).pop("image"), "labels[0]", "needs an image"),
        (lambda d: _label(d).update({"name": "Pod_1"}), "labels[0].name", "small letters"),
        (lambda d: _label(d, 3).update({"name": "a b"}), "labels[3].name", "label's value"),
        (lambda d: _label(d).update({"cpu-limit": 1}), "labels[0].cpu-limit", "less than the request"),
        (lambda d: _label(d, 1).update({"cpu": 5}), "labels[1].cpu", "less than the request"),
        (lambda d: _label(d)["env"][0].pop("value"), "env[0].value", "required"),
        (lambda d: _label(d)["labels"].update({"a/b/c": "x"}), "labels[0].labels.a/b/c", "no name"),
        (lambda d: _label(d)["labels"].update({"a": "x/y"}), "labels[0].labels.a", "no value"),
        (lambda d: _label(d)["annotations"].update({"-": "x"}), "labels[0].annotations.-", "no name"),
        (lambda d: _label(d)["dynamic-labels"].update({"a b": "x"}), "labels[0].dynamic-labels.a b", "no name"),
        (lambda d: _label(d, 2).update({"image": "x"}), "labels[2].image", "no effect beside"),
        (lambda d: _label(d).update({"cpus": 1}), "labels[0].cpus", "unknown"),
    ],
)
def test_what_is_wrong(tmp_path: Path, change: Any, key: str, text: str) -> None:
    """reference/configuration: refused with file, line, key and what is allowed."""
    data = copy.deepcopy(EVERYTHING)
    change(data)
    found = problems_of_section(tmp_path, data)
    assert len(found) == 1, found
    where, _, said = found[0].partition(": ")
    assert where.endswith(key)
    assert text in said


def test_daemons_go_on_without_a_label() -> None:
    """A label that the API would refuse at each launch does not keep the others from being served."""
    data = copy.deepcopy(EVERYTHING)
    del _label(data)["image"]
    _label(data)["labels"]["a b"] = "c d"
    ((path, text),) = KubernetesProviderConfig.without_effect(data)
    assert path == ["pools", 0, "labels", 0, "labels", "a b"]
    assert text.endswith("a daemon does not offer the label here")
