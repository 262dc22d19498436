# SPDX-License-Identifier: Apache-2.0
"""Store, lock, watch: everything that crosses ZooKeeper (reference/zookeeper)."""
