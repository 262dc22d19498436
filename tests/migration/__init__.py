# SPDX-License-Identifier: Apache-2.0
"""Released launchers are replaced by ours under load, and the other way round, as how-to/migrate.rst says."""
