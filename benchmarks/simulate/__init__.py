# SPDX-License-Identifier: Apache-2.0
"""How far launchers and one ZooKeeper ensemble go: real launchers in virtual time, and what follows for large sites."""
