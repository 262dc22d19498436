# SPDX-License-Identifier: Apache-2.0
"""A simulated Kubernetes over HTTP: an API server with memory, its controllers, a scheduler and a kubelet.

The official client talks to it as to a cluster::

    with KubernetesSimulator(KubernetesSettings(start_seconds=(1, 3))) as simulator:
        simulator.write_kubeconfig("kubeconfig")
        ...
        simulator.change(errors=[{"operation": "pods.create", "kind": "drop", "after": True, "rate": 0.1}])

It plays Kubernetes of today: no service account gets a token secret by itself. With ``openshift`` it serves projects.
``tests/functional/kubernetes`` holds it to a real control plane. ``python -m simulators.kubernetes`` runs it as a
process of its own; `KubernetesSimulatorClient` steers it then.
"""

from simulators.base.rules import ErrorRule
from simulators.kubernetes.client import KubernetesSimulatorClient
from simulators.kubernetes.settings import KubernetesSettings, PodRule, WatchRule
from simulators.kubernetes.simulator import KubernetesSimulator

__all__ = [
    "ErrorRule",
    "KubernetesSettings",
    "KubernetesSimulator",
    "KubernetesSimulatorClient",
    "PodRule",
    "WatchRule",
]
