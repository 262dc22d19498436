# SPDX-License-Identifier: Apache-2.0
"""Simulated clouds over HTTP, with memory, faults and settings. Tests, benchmarks and the demo use them.

From the top of the checkout, ``python -m simulators.openstack --help`` says how one runs as a process of its own. So do
``aws``, ``azure``, ``gce``, ``ibmvpc``, ``kubernetes`` and ``example_cloud``. The installed package has none of them.
"""
