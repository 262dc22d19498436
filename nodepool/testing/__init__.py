# SPDX-License-Identifier: Apache-2.0
"""For authors of drivers: a suite that checks a driver against the rules, and what it runs on.

* `nodepool.testing.contract.DriverContract`: subclass it in a test module and run pytest;
* `nodepool.testing.memory_zk.MemoryZooKeeper`: the facade that drivers see, without a server;
* `nodepool.testing.pool_worker.PoolWorkerStandIn`: what a request handler needs around it.

Only ``contract`` imports pytest.
"""
