# SPDX-License-Identifier: Apache-2.0
"""``/api/v1``: what the commands show, as JSON. A file for each resource; each declares its route and its schema."""
