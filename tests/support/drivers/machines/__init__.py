# SPDX-License-Identifier: Apache-2.0
"""``driver: machines``, see `tests.support.machine_driver`."""

from tests.support.machine_driver import MachineDriverBase


class MachinesDriver(MachineDriverBase):
    """A directory for drivers must hold exactly one."""
