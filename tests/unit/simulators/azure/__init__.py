# SPDX-License-Identifier: Apache-2.0
"""The simulated AWS region, asked with AWS's own client: it checks requests and reads answers by its service models."""
