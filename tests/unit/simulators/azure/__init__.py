# SPDX-License-Identifier: Apache-2.0
"""The simulated subscription, held to recordings of Azure."""
