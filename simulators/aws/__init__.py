# SPDX-License-Identifier: Apache-2.0
"""A simulated AWS region over HTTP: EC2, EBS, S3 and Service Quotas with memory and settings.

botocore talks to it as to AWS::

    with AwsSimulator(AwsSettings(boot_seconds=(1, 3))) as simulator:
        os.environ.update(simulator.environment)
        ...
        simulator.change(errors=[{"operation": "ec2.RunInstances", "kind": "drop", "after": True, "rate": 0.1}])

``python -m simulators.aws`` runs it as a process of its own; `AwsSimulatorClient` steers it then. It needs
botocore, which has the shapes of requests and answers.
"""

from simulators.aws.client import AwsSimulatorClient
from simulators.aws.settings import (
    AwsErrorRule,
    AwsSettings,
    CapacityRule,
    EndRule,
    ImportRule,
    InstanceBootRule,
)
from simulators.aws.simulator import AwsSimulator, environment

__all__ = [
    "AwsErrorRule",
    "AwsSettings",
    "AwsSimulator",
    "AwsSimulatorClient",
    "CapacityRule",
    "EndRule",
    "ImportRule",
    "InstanceBootRule",
    "environment",
]
