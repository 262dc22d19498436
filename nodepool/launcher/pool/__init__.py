# SPDX-License-Identifier: Apache-2.0
"""The worker of one pool of a provider, and its parts."""
