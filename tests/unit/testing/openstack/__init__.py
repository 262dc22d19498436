# SPDX-License-Identifier: Apache-2.0
"""The OpenStack simulator without HTTP."""
