# SPDX-License-Identifier: Apache-2.0
"""The demonstration behind ``tools/demo``. It knows Nodepool only from outside: its commands and its contract."""
