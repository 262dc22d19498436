# SPDX-License-Identifier: Apache-2.0
"""What the command lines print."""

from __future__ import annotations

import pytest

from tests.migration.tables import rows_of

TABLE = """\
+------------+-------+
| ID         | State |
+------------+-------+
| 0000000001 | hold  |
| 0000000002 |       |
+------------+-------+
"""


def test_rows_by_their_headers() -> None:
    assert rows_of(TABLE) == [{"ID": "0000000001", "State": "hold"}, {"ID": "0000000002", "State": ""}]


def test_row_with_other_columns() -> None:
    with pytest.raises(ValueError, match=r"longer|shorter"):
        rows_of("| ID | State |\n| 1 |\n")
