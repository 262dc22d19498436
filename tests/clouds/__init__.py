# SPDX-License-Identifier: Apache-2.0
"""The behaviour suite of clouds: a launcher with six simulated clouds, from outside."""
