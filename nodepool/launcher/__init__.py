# SPDX-License-Identifier: Apache-2.0
"""Worker threads of ``nodepool-launcher``. Each waits for an event, decides, and applies the decision."""
