# SPDX-License-Identifier: Apache-2.0
"""The worker of one provider-pool and its parts."""
