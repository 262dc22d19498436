# SPDX-License-Identifier: Apache-2.0
"""Reading files and putting in environment variables (reference/configuration 1)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from nodepool.config import marks
from nodepool.exceptions import ConfigError


class TestRead:
    def test_text(self, tmp_path: Path) -> None:
        file = tmp_path / "a.yaml"
        file.write_text("a: ä\n", encoding="utf-8")
        assert marks.read(str(file)).text == "a: ä\n"

    def test_digest(self, tmp_path: Path) -> None:
        """W-1: of the file as it is, not of what is put in."""
        path = tmp_path / "f"
        path.write_bytes(b"\xef\xbb\xbfa: %(NODEPOOL_X)\n")
        found = marks.read(str(path), environ={"NODEPOOL_X": "b"})
        assert found.digest == hashlib.sha256(path.read_bytes()).hexdigest()[:12]

    def test_byte_order_mark(self, tmp_path: Path) -> None:
        file = tmp_path / "a.yaml"
        file.write_bytes(b"\xef\xbb\xbfa: 1\n")
        assert marks.read(str(file)).text == "a: 1\n"

    def test_missing_is_tried_three_times(self, tmp_path: Path) -> None:
        """No such file: 3 tries, 0.5 s apart."""
        pauses: list[float] = []
        with pytest.raises(marks.UnreadableError, match="no such file"):
            marks.read(str(tmp_path / "a.yaml"), sleep=pauses.append)
        assert pauses == [0.5, 0.5]

    def test_file_that_comes_back(self, tmp_path: Path) -> None:
        """An editor may just be replacing it."""
        file = tmp_path / "a.yaml"

        def write(_: float) -> None:
            file.write_text("a: 1", encoding="utf-8")

        assert marks.read(str(file), sleep=write).text == "a: 1"

    def test_directory(self, tmp_path: Path) -> None:
        """Other errors are not retried."""
        with pytest.raises(marks.UnreadableError, match="is a directory"):
            marks.read(str(tmp_path), sleep=_no_sleep)

    def test_not_permitted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("builtins.open", refuse)
        with pytest.raises(marks.UnreadableError, match="may not be read by this user"):
            marks.read(str(tmp_path / "a.yaml"), sleep=_no_sleep)

    def test_other_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(marks.UnreadableError, match="cannot be read: Not a directory"):
            marks.read(str(tmp_path / "file" / "a.yaml"), sleep=_no_sleep)

    def test_impossible_name(self) -> None:
        with pytest.raises(marks.UnreadableError, match="cannot be read"):
            marks.read("a\0b", sleep=_no_sleep)

    def test_not_utf8(self, tmp_path: Path) -> None:
        file = tmp_path / "a.yaml"
        file.write_bytes(b"a: 1\nb: \xe4\n")
        with pytest.raises(ConfigError, match=r"a\.yaml:2: not UTF-8 text: byte 0xe4"):
            marks.read(str(file))

    def test_too_large(self, tmp_path: Path) -> None:
        file = tmp_path / "a.yaml"
        with file.open("wb") as handle:
            handle.truncate(marks.MAX_BYTES + 1)
        with pytest.raises(ConfigError, match="larger than 64 MiB"):
            marks.read(str(file))

    def test_environment_of_the_process(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(os.environ, "NODEPOOL_X", "7")
        file = tmp_path / "a.yaml"
        file.write_text("a: %(NODEPOOL_X)", encoding="utf-8")
        assert marks.read(str(file)).text == "a: 7"


class TestSubstitute:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("port: %(NODEPOOL_PORT)", "port: 99"),
            ("%(NODEPOOL_PORT)%(NODEPOOL_PORT)", "9999"),
            ("%(NODEPOOL_UNSET)", "%(NODEPOOL_UNSET)"),
            ("%(HOME)", "%(HOME)"),
            ("%(NODEPOOL_PORT", "%(NODEPOOL_PORT"),
            ("%(NODEPOOL_NEST)", "%(NODEPOOL_PORT)"),
        ],
    )
    def test_replaced(self, text: str, expected: str) -> None:
        """Every ``%(NODEPOOL_...)`` that is set; unset names stay as text; values are not looked through again."""
        environ = {"NODEPOOL_PORT": "99", "HOME": "/root", "NODEPOOL_NEST": "%(NODEPOOL_PORT)"}
        assert marks.substitute("f", text, environ).text == expected

    def test_lines(self) -> None:
        """Line numbers are those of the file, whatever a variable brings in."""
        text = marks.substitute("f", "a\n%(NODEPOOL_X)\nb", {"NODEPOOL_X": "1\n2\n3"})
        assert [text.line(number) for number in range(5)] == [1, 2, 2, 2, 3]
        assert text.line(100) == 3

    def test_no_placeholder(self) -> None:
        assert marks.substitute("f", "a\nb", {}).line(1) == 2


def _no_sleep(_: float) -> None:
    pytest.fail("must not be retried")
