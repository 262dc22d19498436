# SPDX-License-Identifier: Apache-2.0
"""Parts that every daemon uses: worker threads, the connection to ZooKeeper, and the start of providers."""
