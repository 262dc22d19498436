# SPDX-License-Identifier: Apache-2.0
"""The phases of a launch, a file each. A phase does what can be done now, and does not know the others.

All have ``step()``: it returns the seconds until the next step, or None when the phase is over and its result can be
read. An exception means that the attempt failed.
"""
