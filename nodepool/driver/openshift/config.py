# SPDX-License-Identifier: Apache-2.0
"""Configuration of the OpenShift driver: that of Kubernetes, except for what stands here."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from nodepool.driver.kubernetes.config import AnyPodPool, AnyPodProvider, PodLabel, pods_only, usable_label
from nodepool.model.config_keys import ANY_MAPPING, FILLED_TEXT, FLAG, REQUIRED, WHOLE, ListOf, OneOf, Sections, key


def references(found: list[Any]) -> list[dict[str, Any]]:
    """Names of secrets, as they stand in a pod."""
    return [{"name": entry} if isinstance(entry, str) else entry for entry in found]


class PullingLabel(PodLabel):
    """A pod whose image may need credentials."""

    image_pull_secrets: list[dict[str, Any]] = key(
        ListOf(OneOf((FILLED_TEXT, ANY_MAPPING))),
        [],
        "Secrets with which the image is pulled: their names, or ``- name: my-secret``.",
        convert=references,
    )


class OpenShiftLabel(PullingLabel):
    """How to make a project, or a pod in one of its own."""

    type: str = key(
        FILLED_TEXT,
        REQUIRED,
        "``pod``: a job gets a pod in a project of its own; any other text: it gets an empty project.",
        read=False,
    )

    makes_pod = staticmethod(lambda label: label.get("type") == "pod")
    checks = (usable_label, functools.partial(pods_only, makes_pod))


class OpenShiftPool(AnyPodPool):
    """A slice of the cluster. Projects are named ``<pool>-<node id>``."""

    labels: dict[str, OpenShiftLabel] = key(Sections(OpenShiftLabel), None, "What nodes are made of.")


OpenShiftPoolT = TypeVar("OpenShiftPoolT", bound=AnyPodPool)


class AnyOpenShiftProvider(AnyPodProvider[OpenShiftPoolT]):
    """Keys of both drivers."""

    context: str = key(
        FILLED_TEXT, REQUIRED, "Of the kubeconfig, which says how to reach a cluster and who we are there."
    )
    max_projects: float | None = key(
        WHOLE, None, "Old name of ``max-servers``; it wins if both are given.", default_text="not given"
    )

    @property
    def default_max_servers(self) -> float:
        return self.max_servers if self.max_projects is None else self.max_projects


class OpenShiftProviderConfig(AnyOpenShiftProvider[OpenShiftPool]):
    """One ``providers[]`` section with ``driver: openshift``."""

    default_account: bool = key(
        FLAG,
        False,
        "The job of a pod without ``spec`` uses the account ``default``, which the cluster makes in each project: one "
        "call less a node. The pod itself gets no token of it.",
    )
    _pools: dict[str, OpenShiftPool] = key(Sections(OpenShiftPool), None, "The pools of the provider.", name="pools")
