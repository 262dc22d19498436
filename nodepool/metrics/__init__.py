# SPDX-License-Identifier: Apache-2.0
"""statsd metrics (metrics.md): values are computed here, pure; one small client sends them."""
