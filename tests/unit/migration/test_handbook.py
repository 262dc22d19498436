# SPDX-License-Identifier: Apache-2.0
"""Which commands of the page are run."""

from __future__ import annotations

import pytest

from tests.migration.handbook import PAGE, commands, runnable

TEXT = """
Text with $ signs.

.. code-block:: console

   $ /opt/nodepool/bin/nodepool list
   what it prints
   $ systemctl stop nodepool-launcher

* In a list:

  .. code-block:: console

     $ /opt/nodepool-11/bin/nodepool list

.. code-block:: ini

   $ not = a command
"""


def test_commands_of_console_blocks() -> None:
    assert list(commands(TEXT)) == [
        "/opt/nodepool/bin/nodepool list",
        "systemctl stop nodepool-launcher",
        "/opt/nodepool-11/bin/nodepool list",
    ]


def test_what_is_run() -> None:
    assert runnable(TEXT) == ["/opt/nodepool/bin/nodepool list", "/opt/nodepool-11/bin/nodepool list"]


def test_what_nobody_knows_how_to_run() -> None:
    with pytest.raises(AssertionError, match="nobody runs this command of the page: reboot"):
        runnable(".. code-block:: console\n\n   $ reboot\n")


def test_the_page_itself() -> None:
    found = runnable(PAGE.read_text(encoding="utf-8"))
    assert {command.split()[0] for command in found} == {
        "/opt/nodepool/bin/nodepool",
        "/opt/nodepool-11/bin/nodepool",
    }
    assert any(command.endswith("config-validate") for command in found)
