# SPDX-License-Identifier: Apache-2.0
"""Files: what cannot be read, when they are read again, and that nothing but a `ConfigError` leaves a bad one.

Issue 2, "Bad input": logged or refused clearly. A traceback of anything else would end the launcher's main loop turn.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodepool.cmd.cli import main
from nodepool.config import problems
from nodepool.config.assembly import validate, validate_here
from nodepool.config.loader import ConfigSource, load_config, load_zookeeper
from nodepool.config.problems import MAX_BYTES, Document, Problem, Problems, SourceText, parse, substitute
from nodepool.exceptions import ConfigError
from tests.support.tables import rows
from tests.unit.config.conftest import HEAD, Files, OddDriver


def touch(path: Path, text: str | None = None) -> None:
    """Change a file; its time differs for sure from what it was."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    if text is not None:
        path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(before + 10**9, before + 10**9))


@rows(__file__, "test_bad_files")
def test_bad_files(files: Files, content: str, expected: str) -> None:
    """Issue 2, bad input: refused with one clear line."""
    files.main.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        load_config(str(files.main))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{files.main}{expected}")


def test_files_that_cannot_be_opened(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such file: 3 tries, 0.5 s apart, because an editor may be replacing it; other errors are not retried."""
    directory, pauses = files.directory, list[float]()
    (directory / "plain").touch()
    monkeypatch.setattr(problems, "sleep", pauses.append)

    def told(path: str, *more: str) -> list[str]:
        pauses.clear()
        with pytest.raises(ConfigError) as caught:
            load_config(path, *more)
        return files.short(str(caught.value)).splitlines()

    assert told(f"{directory}/none") == ["none: no such file"]
    assert pauses == [0.5, 0.5]
    assert told(f"{directory}/a", f"{directory}/b") == ["a: no such file", "b: no such file"]
    assert told(str(directory)) == [f"{directory}: is a directory, a file is needed"]
    assert told(f"{directory}/plain/f") == ["plain/f: cannot be read: Not a directory"]
    assert "cannot be read" in told("a\0b")[0]
    assert pauses == []

    def write(_: float) -> None:
        files.write("")

    monkeypatch.setattr(problems, "sleep", write)
    assert load_config(str(files.main)).labels == {}
    with files.main.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ConfigError, match="larger than 64 MiB"):
        load_config(str(files.main))


@pytest.fixture
def source(files: Files, monkeypatch: pytest.MonkeyPatch) -> ConfigSource:
    files.write("", "")
    monkeypatch.setattr(problems, "sleep", lambda _: None)
    return ConfigSource(str(files.main), str(files.secure))


def loaded(source: ConfigSource) -> None:
    """It loads, and afterwards there is nothing to load."""
    assert source.changed()
    source.load()
    assert not source.changed()


def refused(source: ConfigSource) -> None:
    """As `loaded`, but the file is not parsed again before it changes."""
    assert source.changed()
    with pytest.raises(ConfigError):
        source.load()
    assert not source.changed()


def test_when_it_is_loaded_again(source: ConfigSource, files: Files) -> None:
    """G-8, issue 2: any difference of a time counts, an older one, too; what is refused is not parsed again."""
    loaded(source)
    for file in (files.main, files.secure):
        os.utime(file, ns=(5, 5))
        loaded(source)
    touch(files.main, "a: [")
    refused(source)
    touch(files.main, HEAD)
    loaded(source)
    files.main.unlink()
    refused(source)
    touch(files.main, HEAD)
    loaded(source)


def test_a_file_that_may_not_be_read(source: ConfigSource, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """chmod does not change the modification time. Root may read all files, so `open` refuses it."""
    files.main.chmod(0)
    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", Mock(side_effect=PermissionError(13, "Permission denied")))
        with pytest.raises(ConfigError, match="may not be read by this user") as caught:
            source.load()
        assert isinstance(caught.value.__cause__, PermissionError)
        assert not source.changed()
    files.main.chmod(0o600)
    loaded(source)


SITE: Final = "labels: [{name: small}]\nproviders:\n- {name: one, driver: odd}\n"


def test_files_that_drivers_read(source: ConfigSource, files: Files, odd_driver: OddDriver) -> None:
    """A change of clouds.yaml is a change of the configuration; so is that it comes, or goes."""
    clouds = files.directory / "clouds.yaml"
    odd_driver(load=f"newconfig.watched_files.add({str(clouds)!r})")
    files.write(SITE)
    loaded(source)
    assert str(clouds) in source.files()
    clouds.write_text("clouds: {}", encoding="utf-8")
    loaded(source)
    os.utime(clouds, ns=(1, 1))
    loaded(source)
    clouds.unlink()
    loaded(source)


def test_change_while_loading(source: ConfigSource, files: Files, odd_driver: OddDriver) -> None:
    """An edit that comes while the file is read is not lost; drivers hear before of each load (reference/driver 1)."""
    resets = files.directory / "resets"
    edit = f"import os; os.utime({str(files.main)!r}, ns=(7, 7))"
    odd_driver(load=edit, config=f"return Config_(provider)\n    def reset(self): open({str(resets)!r}, 'x').close()")
    files.write(SITE)
    source.load()
    assert source.changed()
    assert not resets.exists()
    source.load()
    assert resets.exists()


GOOD: Final[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "good.yaml").read_text(encoding="utf-8"))
#: Words and pieces of YAML that mean something.
TEXTS: Final = yaml.safe_load("['', name, labels, pools, driver, fake, static, aws, fak, small, image, base, winrm, /]")

scalars = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(TEXTS), st.dates()),
    # Too long for repr().
    st.builds(lambda: 2**15000),
    *(st.text(st.characters(codec="utf-8"), max_size=5), st.binary(max_size=3)),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3), max_leaves=8
)
fuzz = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Dumper(yaml.SafeDumper):
    """Writes very long numbers, which ``str`` refuses."""


Dumper.add_representer(int, lambda dumper, data: dumper.represent_scalar("tag:yaml.org,2002:int", hex(data)))


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A good configuration with a few places replaced, removed or added to."""
    data = copy.deepcopy(GOOD)
    for path in draw(st.lists(st.sampled_from(list(places(GOOD))), min_size=1, max_size=3)):
        owner: Any = data
        # An earlier damage may have removed the place.
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for part in path[:-1]:
                owner = owner[part]
            damage(owner, path[-1], draw)
    text: str = yaml.dump(data, Dumper=Dumper, allow_unicode=True)
    return text


def damage(owner: Any, key: Any, draw: st.DrawFn) -> None:
    kind = draw(st.sampled_from(["replace", "remove", "add"]))
    if kind == "replace":
        owner[key] = draw(values)
    elif kind == "remove":
        del owner[key]
    elif isinstance(owner, list):
        owner.append(draw(st.sampled_from(owner) | values))
    else:
        owner[draw(scalars)] = draw(values)


def use(files: Files, text: str | bytes | None = None) -> None:
    """Use a file in every way there is; what is found are lines, each with its place.

    :param text: of the main file; None: both files are there.
    """
    if text is not None:
        files.main.write_bytes(text if isinstance(text, bytes) else text.encode())
    main_file, second = str(files.main), None if text is not None else str(files.secure)
    reasons: list[str] = []
    found: list[Problem] = []
    ways: list[Callable[[], object]] = [
        lambda: load_config(main_file, second),
        lambda: load_zookeeper(main_file, second),
        lambda: found.extend(validate(main_file)),
        lambda: found.extend(validate_here(main_file, second)),
    ]
    for way in ways:
        try:
            way()
        except ConfigError as error:
            reasons += str(error).splitlines() or [""]
    for line in [*reasons, *map(str, found)]:
        assert len(line.splitlines()) == 1
        assert line.startswith((main_file, str(second)))


@pytest.mark.usefixtures("quiet")
@fuzz
@given(damaged())
def test_damaged_files(files: Files, text: str) -> None:
    """G-4, G-15: the secure file is no more trusted; the same text means the same (but for ``.nan``)."""
    use(files, text)
    with contextlib.suppress(ConfigError):
        first = load_config(str(files.main))
        assert ".nan" in text or first == load_config(str(files.main))
    files.write(yaml.safe_dump(GOOD), text)
    use(files)


#: Texts that mean much more than they are long.
BOMBS: Final = {
    "deep lists": "[" * 100_000,
    "deep mappings": "{a: " * 100_000,
    "deep blocks": "\n".join(" " * depth + "a:" for depth in range(2000)),
    "aliases of aliases": "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{f'*a{n}, ' * 10}]\n" for n in range(30)),
    "merges of merges": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n + 1}: &a{n + 1} {{<<: [{f'*a{n}, ' * 10}], k{n}: 1}}\n" for n in range(30)),
    "itself": "providers: &a [*a]",
    "itself as a key": "&a {*a : 1}",
    "a long number": "max-hold-age: " + "9" * 1_000_000,
    "a long number of sixties": "max-hold-age: 1" + ":59" * 100_000,
    "a long number in hex": "max-hold-age: 0x" + "f" * 1_000_000,
    "many tags": "labels: " + "!!str " * 1000 + "x",
    "a long key": "x" * 1_000_000 + ": 1",
    "many anchors": "labels: [" + ", ".join(f"&a{n} x" for n in range(2000)) + "]",
    "many documents": "---\n" * 20_000,
    "many keys": "".join(f"key{n}: 1\n" for n in range(500)),
}


@pytest.mark.usefixtures("quiet", "clean_logging")
@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_bombs(files: Files, text: str) -> None:
    """Refused at once: what they would expand to is never made. A message is not as long as what it is about."""
    use(files, text)
    assert main(["-c", str(files.main), "config-validate"]) == 1
    with pytest.raises(ConfigError) as caught:
        load_config(str(files.main))
    assert max(map(len, str(caught.value).splitlines())) < 2000


def test_checksum(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """W-1: of the file as it is, with its byte order mark, and not of what is put in."""
    monkeypatch.setenv("NODEPOOL_X", "/b")
    files.main.write_bytes(b"\xef\xbb\xbfimages-dir: %(NODEPOOL_X)\n" + HEAD.encode())
    config = load_config(str(files.main))
    assert (config.path, config.images_dir) == (str(files.main), "/b")
    assert config.digest == hashlib.sha256(files.main.read_bytes()).hexdigest()[:12]


# -- from text to values with line numbers: YAML as PyYAML reads it, and variables (reference/configuration 1)


@pytest.fixture(params=["C", "Python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """libyaml need not be there. The private name is patched, because nothing of the product chooses a parser."""
    if request.param == "Python":
        monkeypatch.setattr(problems, "_LOADER", yaml.SafeLoader)


def read(text: str, **variables: str) -> tuple[Document, list[str]]:
    problems = Problems()
    document = parse(substitute("f", text, variables), problems)
    return document, [str(problem) for problem in problems.all()]


@pytest.mark.usefixtures("parser")
@rows(__file__, "test_same_as_pyyaml")
def test_same_as_pyyaml(text: str) -> None:
    """PyYAML's safe loader defines what a file means."""
    text = text.replace("LABELS", ", ".join(f"{{name: l{n}, x: 1}}" for n in range(2000)))
    text = text.replace("ALIASES", "\n".join(f"p{n}: *pool" for n in range(20)))
    document, problems = read(text)
    assert problems == []
    assert document.data == yaml.safe_load(text)


@pytest.mark.usefixtures("parser")
@rows(__file__, "test_lines")
def test_lines(path: list[Any], line: int) -> None:
    """The key's own line, or that of the nearest thing around it."""
    text = "a: 1\nb:\n  - c: 2\n    d: &d\n      - 3\n      - 4\ne: *d\nf: {<<: {g: 5}}"
    assert read(text)[0].line_of(path) == line
    assert read("")[0].line_of(path) is None


@pytest.mark.usefixtures("parser")
@rows(__file__, "test_problems")
def test_problems(text: str, data: Any, told: list[str]) -> None:
    """Each at its place, and reading goes on; the last of two keys counts, as in Nodepool 11."""
    variables = {"NODEPOOL_X": "[1,\n 2]", "NODEPOOL_P": "99", "NODEPOOL_NEST": "%(NODEPOOL_P)", "HOME": "/root"}
    document, problems = read(text.replace("NINES", "9" * 5000), **variables)
    assert document.data == data if data is not None else document.data["c"] == 3
    assert len(problems) == len(told)
    for problem, words in zip(problems, told, strict=True):
        assert words in problem
        assert data is not None or problem.startswith("f:2: b: ")


def bomb(levels: int) -> str:
    """Billion laughs: each level has nine times the level before."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    return "\n".join(lines + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)])


TRAPS: Final = {
    "laughs": bomb(9),
    "brackets": "[" * 100_000,
    "surrogate": "a: \ud800",
    "steps": "\n".join("  " * n + "a:" for n in range(60)),
    "aliases": "a0: &a0 []\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 99)),
}


@pytest.mark.usefixtures("parser")
@rows(__file__, "test_refused")
def test_refused(text: str, place: str, words: str) -> None:
    """One clear message that says where."""
    message = refusal(TRAPS.get(text, text))
    assert message.startswith(f"f:{place}")
    assert words in message
    assert "must be in quotes" not in message, "an unset variable is the likelier cause"


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(SourceText("f", text), Problems())
    (message,) = str(caught.value).splitlines()
    return message


@rows(__file__, "test_hints")
def test_hints(text: str, place: str, words: str) -> None:
    """In plain words what is usually wrong there. Those of the parser in C are known, which is nearly always there."""
    message = refusal(text)
    assert message.startswith(f"f:{place}not YAML: ")
    assert words in message
