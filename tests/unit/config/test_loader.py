# SPDX-License-Identifier: Apache-2.0
"""Loading, and when to load again (reference/configuration 1, rules G-1, G-8)."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.config import loader
from nodepool.config.loader import ConfigSource, load_config
from nodepool.config.schema import Checker
from nodepool.driver.registry import Drivers
from nodepool.exceptions import ConfigError

GOOD = "zookeeper-servers: [{host: zk}]\nzookeeper-tls: {cert: c, key: k, ca: a}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.yaml"
    path.write_text(GOOD, encoding="utf-8")
    return path


def no_sleep(_: float) -> None:
    """For files that are missing on purpose."""


def touch(path: Path, text: str | None = None) -> None:
    """Change a file; its time differs for sure from what it was."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    if text is not None:
        path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before + 10**9, before + 10**9))


class TestLoad:
    def test_path(self, file: Path) -> None:
        assert load_config(str(file)).path == str(file)

    def test_strict(self, file: Path, caplog: pytest.LogCaptureFixture) -> None:
        """An unknown key: an error when strict, a warning with file and line else."""
        file.write_text(f"{GOOD}lables: []\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"^{file}:3: lables: unknown key, did you mean 'labels'\?"):
            load_config(str(file), strict=True)
        load_config(str(file))
        assert [
            (record.levelname, record.getMessage()[: len(f"{file}:3: lables: unknown key")])
            for record in caplog.records
        ] == [("WARNING", f"{file}:3: lables: unknown key")]

    def test_errors_and_warnings_together(self, file: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The error text has the errors only, in the order of the lines; the log has the warnings."""
        file.write_text(
            f"{GOOD}webapp: {{listen_address: [x], prot: 1}}\nmax-hold-age: y\nlables: []\n", encoding="utf-8"
        )
        with pytest.raises(ConfigError) as caught:
            load_config(str(file))
        assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
            "webapp.listen_address",
            "max-hold-age",
        ]
        assert len(caplog.records) == 2

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"", "the file is empty"),
            (b"# only a comment\n", "the file is empty"),
            (b"hello", "the file must be a mapping with keys such as providers, but it is 'hello'"),
            (b"- a\n- b\n", "the file must be a mapping with keys such as providers, but it is a list"),
            (b"17", "the file must be a mapping with keys such as providers, but it is 17"),
            (b"a: \xff\n", ":1: not UTF-8 text"),
            (b"a: [}\n", ":1:5: not YAML"),
            (b"\x00\x01", "not YAML"),
        ],
    )
    def test_bad_files(self, file: Path, content: bytes, expected: str) -> None:
        """Issue 2, bad input: refused with one clear line."""
        file.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            load_config(str(file))
        (line,) = str(caught.value).splitlines()
        assert line.startswith(str(file))
        assert expected in line

    def test_directory(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=rf"^{tmp_path}: is a directory, a file is needed$"):
            load_config(str(tmp_path))

    def test_missing_file(self, tmp_path: Path) -> None:
        pauses: list[float] = []
        with pytest.raises(ConfigError, match=rf"^{tmp_path}/none: no such file$"):
            load_config(str(tmp_path / "none"), sleep=pauses.append)
        assert pauses == [0.5, 0.5]

    def test_both_files_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            load_config(str(tmp_path / "a"), str(tmp_path / "b"), sleep=no_sleep)
        assert len(str(caught.value).splitlines()) == 2

    def test_pipe_is_no_file(self, tmp_path: Path, file: Path) -> None:
        """It has no modification time to follow, but it can be read."""
        path = tmp_path / "pipe"
        os.mkfifo(path)
        thread = threading.Thread(target=path.write_text, args=(GOOD,))
        thread.start()
        assert load_config(str(path)).zookeeper_servers
        thread.join()

    def test_drivers_are_told(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """reference/driver 1: reset() before every configuration load."""
        calls: list[int] = []
        monkeypatch.setattr(Drivers, "reset", lambda: calls.append(1))
        load_config(str(file))
        assert calls == [1]

    def test_large(self, tmp_path: Path) -> None:
        """400 labels in each of 5 providers; how fast that is, is for the benchmarks to say."""
        names = [f"label-{number}" for number in range(400)]
        labels = [{"name": name} for name in names]
        pools = [{"name": "main", "labels": labels}]
        data: dict[str, Any] = {
            "labels": labels,
            "providers": [{"name": f"p{number}", "driver": "fake", "pools": pools} for number in range(5)],
        }
        file = tmp_path / "large.yaml"
        # Without aliases, as people write it.
        dumper = type("Dumper", (yaml.CSafeDumper,), {"ignore_aliases": lambda self, data: True})
        file.write_text(GOOD + yaml.dump(data, Dumper=dumper), encoding="utf-8")
        first = load_config(str(file))
        assert [len(label.pools) for label in first.labels.values()] == [5] * 400
        assert first == load_config(str(file))


class TestConfigSource:
    def test_first_time(self, file: Path) -> None:
        source = ConfigSource(str(file))
        assert source.changed()
        source.load()
        assert not source.changed()

    @pytest.mark.parametrize("which", ["main", "secure"])
    def test_modification_time(self, file: Path, tmp_path: Path, which: str) -> None:
        """Any difference counts, also an older time."""
        secure = tmp_path / "s.yaml"
        secure.touch()
        source = ConfigSource(str(file), str(secure))
        source.load()
        changed = file if which == "main" else secure
        os.utime(changed, ns=(5, 5))
        assert source.changed()
        source.load()
        assert not source.changed()

    def test_broken_file_is_not_parsed_again(self, file: Path) -> None:
        """G-8, issue 2: not before it changes."""
        source = ConfigSource(str(file))
        source.load()
        touch(file, "a: [")
        assert source.changed()
        with pytest.raises(ConfigError):
            source.load()
        assert not source.changed()
        touch(file, GOOD)
        assert source.changed()
        assert source.load().zookeeper_servers

    def test_missing_file_is_noticed_when_it_comes(self, file: Path) -> None:
        source = ConfigSource(str(file), sleep=no_sleep)
        source.load()
        file.unlink()
        assert source.changed()
        with pytest.raises(ConfigError):
            source.load()
        assert not source.changed()
        touch(file, GOOD)
        assert source.changed()
        source.load()

    def test_unreadable_file_is_retried(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """chmod does not change the modification time."""
        source = ConfigSource(str(file))
        allowed = False
        real_open = open

        def guarded(path: str, *arguments: Any, **options: Any) -> Any:
            if path == str(file) and not allowed:
                raise PermissionError(13, "Permission denied", path)
            return real_open(path, *arguments, **options)

        monkeypatch.setattr("builtins.open", guarded)
        with pytest.raises(ConfigError, match="may not be read"):
            source.load()
        assert not source.changed()
        allowed = True
        assert source.changed()
        source.load()
        assert not source.changed()

    def test_files_that_drivers_read(self, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A change of clouds.yaml is a change of the configuration; so is that it comes, or goes."""
        clouds = tmp_path / "clouds.yaml"
        monkeypatch.setattr(
            "nodepool.config.assembly.ProviderReader.read",
            lambda reader: reader._config.watched_files.add(str(clouds)),
        )
        source = ConfigSource(str(file))
        source.load()
        assert not source.changed()
        clouds.write_text("clouds: {}", encoding="utf-8")
        assert source.changed()
        source.load()
        assert not source.changed()
        os.utime(clouds, ns=(1, 1))
        assert source.changed()
        source.load()
        clouds.unlink()
        assert source.changed()

    def test_change_while_loading(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An edit that comes while the file is read is not lost."""
        source = ConfigSource(str(file))
        real = loader.load_config

        def edit(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            touch(file)
            return result

        monkeypatch.setattr(loader, "load_config", edit)
        source.load()
        assert source.changed()

    def test_only_sections_that_changed_are_checked(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """G-4: what was checked before is not checked again; what changed, or had an objection, is."""
        checked: list[str] = []
        check = Checker.check

        def note(checker: Checker, value: Any, *arguments: Any) -> Any:
            if isinstance(value, dict) and "driver" in value:
                checked.append(value["name"])
            return check(checker, value, *arguments)

        monkeypatch.setattr(Checker, "check", note)
        good = {"name": "one", "driver": "fake", "pools": [{"name": "main", "labels": [{"name": "small"}]}]}
        odd = {**good, "name": "odd", "no-such-key": 1}

        def load(*providers: dict[str, Any]) -> set[str]:
            text = yaml.safe_dump({"labels": [{"name": "small"}], "providers": list(providers)})
            touch(file, GOOD + text)
            checked.clear()
            source.load()
            return set(checked)

        source = ConfigSource(str(file))
        assert load(good, odd) == {"one", "odd"}
        assert load(good, odd) == {"odd"}, "its warning comes again"
        assert load({**good, "max-concurrency": 5}) == {"one"}
        assert load({**good, "max-concurrency": "x"}) == {"one"}
        assert load({**good, "max-concurrency": 5}) == set()
