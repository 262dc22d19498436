# SPDX-License-Identifier: Apache-2.0
"""Worker threads of ``nodepool-launcher``: wait for an event, decide, apply."""
