# SPDX-License-Identifier: Apache-2.0
"""``/api/v1``: what the commands show, as JSON. `resources` has all of them, each with route and schema."""
