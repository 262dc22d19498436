# SPDX-License-Identifier: Apache-2.0
"""``nodepool``: the command line for operators (reference/commands 2).

First the parser and the program, then ``nodepool completion``.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from nodepool import log_names, logconfig
from nodepool.cmd import app

PROG: Final = "nodepool"

#: Module, its function that adds commands, and these, in the order of the help text.
GROUPS: Final[Sequence[tuple[str, str, tuple[str, ...]]]] = (
    ("nodes", "add_commands", ("list", "nodes", "delete", "hold")),
    ("nodes", "add_request_commands", ("request-list", "requests", "label-list")),
    ("overview", "add_explain_commands", ("explain",)),
    ("image_lists", "add_commands", ("image-list", "dib-image-list", "image-status", "alien-image-list")),
    (
        "image_changes",
        "add_commands",
        ("image-build", "image-pause", "image-unpause", "image-delete", "dib-image-delete"),
    ),
    ("image_changes", "add_upload_commands", ("image-upload", "image-rollback")),
    ("image_lists", "add_log_commands", ("image-log",)),
    ("image_backup", "add_commands", ("export-image-data", "import-image-data")),
    ("providers", "add_commands", ("info", "erase", "installation")),
    ("overview", "add_commands", ("status", "providers", "hosts", "launchers", "tenants")),
    ("overview", "add_event_commands", ("events",)),
    ("maintenance", "add_commands", ("pause", "drain", "resume", "quarantine", "release", "maintenance")),
    ("validate", "add_commands", ("config-validate",)),
    ("validate", "add_diff_commands", ("config-diff",)),
    ("check", "add_commands", ("check",)),
    ("health", "add_commands", ("health",)),
)
#: The commands as the help of the program shows them.
HEADINGS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "look": (
            *("status", "explain", "list", "request-list", "label-list", "providers", "hosts", "launchers", "tenants"),
            *("events", "info", "health"),
        ),
        "change": ("hold", "delete", "pause", "drain", "resume", "quarantine", "release", "maintenance"),
        "images": (
            *("image-list", "dib-image-list", "image-status", "image-build", "image-upload", "image-rollback"),
            *("image-pause", "image-unpause", "image-delete", "dib-image-delete", "image-log", "alien-image-list"),
        ),
        "configuration": ("config-validate", "config-diff", "check", "completion"),
        "repair": ("erase", "installation", "export-image-data", "import-image-data"),
    }
)
#: Columns of the names of commands in the help.
_NAMES_WIDTH: Final = 24
#: Options in front of a command, and those of them that have a value.
_FLAGS, _FILES = ("--debug",), ("-c", "-s", "-l")


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The command line. Nothing heavy is imported for it.

    :param command: the only one that is needed: to import and describe all takes as long as many a command itself.
        None, or one that does not exist = all.
    """
    parser = app.make_parser(PROG, "Shows and changes what Nodepool knows.")
    _add_debug_option(parser)
    parser.set_defaults(debug=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", help="one of these:")
    texts: dict[str, str] = {}

    def add(name: str, **settings: Any) -> argparse.ArgumentParser:
        """As ``add_parser``; what may stand before a command may stand after it, too."""
        text = settings.pop("help", "")
        settings.setdefault("description", text.capitalize() + ".")
        texts[name] = _line(" ".join([name, *(f"({alias})" for alias in settings.get("aliases", ()))]), text)
        command: argparse.ArgumentParser = commands.add_parser(name, **settings)
        app.add_file_options(command)
        _add_debug_option(command)
        return command

    groups = [group for group in GROUPS if command in group[2]]
    for module, function, _ in groups or GROUPS:
        getattr(importlib.import_module(f"nodepool.cmd.{module}"), function)(add)
    if not groups:
        add_command(add, parser, commands.choices)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        for heading, names in HEADINGS.items():
            parser.add_argument_group(heading, "\n".join(texts[name] for name in names))
    return parser


def _line(names: str, text: str) -> str:
    """A command in the help, as wide as the terminal."""
    indent = " " * _NAMES_WIDTH
    width = max(60, shutil.get_terminal_size().columns - 4)
    if len(names) >= _NAMES_WIDTH:
        return f"{names}\n{textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent)}"
    return textwrap.fill(text, width, initial_indent=f"{names:<{_NAMES_WIDTH}}", subsequent_indent=indent)


def command_in(arguments: Iterable[str]) -> str | None:
    """The first word of a command line that is neither an option nor its value; None = that is not plain to see."""
    words = iter(arguments)
    for word in words:
        if word in _FILES:
            next(words, None)
        elif word not in _FLAGS:
            return None if word.startswith("-") else word
    return None


def _add_debug_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="log everything to stderr")


def set_up_logging(options: argparse.Namespace) -> None:
    """Use ``--debug``, or else ``-l``, or else log to stderr. Raises LogConfigError."""
    if options.logconfig and not options.debug:
        logconfig.load_config(options.logconfig)
        return
    config = logconfig.default_config(level="DEBUG" if options.debug else "INFO", stream="ext://sys.stderr")
    if options.debug:
        config["loggers"] = {}
        config["root"] = {"handlers": ["output"], "level": "DEBUG"}
    else:
        # That a connection was made is no news for somebody who waits for a table.
        config["loggers"]["nodepool.zk"] = {"level": "WARNING"}
        config["loggers"][log_names.COMPONENT_REGISTRY] = {"level": "WARNING"}
    logconfig.apply_config(config)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status.

    :param argv: default: the arguments of the process.
    """
    arguments = sys.argv[1:] if argv is None else argv
    parser = make_parser(command_in(arguments))
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return 1

    def work() -> int:
        set_up_logging(options)
        status: int = options.run(options)
        # Part of the answer: if it cannot be written, as on a full disk, the command has failed.
        print(end="", flush=True)
        return status

    return app.run(PROG, work)


def program() -> int:
    """Entry point of a process that ends with the command; returns the exit status."""
    with app.in_a_command():
        return main()


# ``nodepool completion``: what a shell completes after the Tab key (reference/commands 2).

SHELLS: Final = ("bash", "zsh", "fish")

#: For bash and zsh. In zsh a length that begins with a letter, as in ``${words[@]:1:count}``, is no arithmetic.
_BASH: Final = """\
_nodepool() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    local prefix= command= word= value= offered=
    # --option=value: three words in bash, one in zsh.
    if [ "$current" = "=" ]; then
        current=
    elif [ "$previous" = "=" ]; then
        previous=${{COMP_WORDS[COMP_CWORD-2]}}
    else
        case $current in
            --*=*) previous=${{current%%=*}} prefix=${{current%%=*}}= current=${{current#*=}} ;;
        esac
    fi
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD-1))}}"; do
        if [ -n "$value" ]; then
            value=
            continue
        fi
        case $word in
            {first_values}) value=yes ;;
            {names}) command=$word; break ;;
        esac
    done
    case $command in
        '') offered='{first}' ;;
{commands}
    esac
    case $command:$previous in
{values}
    esac
    COMPREPLY=($(compgen -P "$prefix" -W "$offered" -- "$current"))
}}
complete -o default -F _nodepool nodepool
"""
_ZSH: Final = """\
(( $+functions[compdef] )) || { autoload -U +X compinit && compinit }
autoload -U +X bashcompinit && bashcompinit
"""
#: ``__nodepool_is COMMAND``: is it the command that was typed? That of an empty name: was none typed yet?
_FISH: Final = """\
function __nodepool_is
    set -l value no
    set -l found ''
    for word in (commandline -opc)[2..-1]
        if test $value = yes
            set value no
            continue
        end
        switch $word
            case {first_values}
                set value yes
            case '-*'
                continue
            case '*'
                set found $word
                break
        end
    end
    test "$found" = "$argv[1]"
end
complete -c nodepool -n '__nodepool_is ""' -f
"""


def add_command(
    add: Callable[..., argparse.ArgumentParser],
    parser: argparse.ArgumentParser,
    commands: Mapping[str, argparse.ArgumentParser],
) -> None:
    """Add ``completion``.

    :param add: ``add_parser`` of the sub-command group.
    :param parser: of the whole command line.
    :param commands: name of each command -> its parser; this one is added.
    """
    command = add(
        "completion",
        help="print what a shell needs to complete commands and options",
        description="Prints a script for a shell, which completes commands, options and their values after it.",
        epilog="examples: nodepool completion bash > /etc/bash_completion.d/nodepool; in ~/.zshrc: "
        "source <(nodepool completion zsh); nodepool completion fish > ~/.config/fish/completions/nodepool.fish",
    )
    command.add_argument("shell", choices=SHELLS, help="the shell")

    def run(options: argparse.Namespace) -> int:
        print(script(options.shell, parser, commands), end="")
        return 0

    command.set_defaults(run=run)


def script(shell: str, parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """The script for a shell.

    :param shell: one of `SHELLS`.
    :param parser: of the whole command line, for what may stand before a command.
    :param commands: name of each command -> its parser.
    """
    if shell == "fish":
        return "".join(_fish(parser, commands))
    return (_ZSH if shell == "zsh" else "") + _bash(parser, commands)


def _bash(parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]) -> str:
    words: list[str] = []
    values = list(_bash_values("", parser))
    for name, command in commands.items():
        offered = [option for action in _offered(command) for option in action.option_strings]
        for action in _offered(command):
            if not action.option_strings:
                offered += _choices(action)
        words.append(f"        {name}) offered='{' '.join(offered)}' ;;")
        values += _bash_values(name, command)
    options = [option for action in parser._actions for option in action.option_strings]
    return _BASH.format(
        first_values="|".join(_with_value(parser)),
        names="|".join(commands),
        first=" ".join([*commands, *options]),
        commands="\n".join(words),
        values="\n".join(values),
    )


def _bash_values(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    """What stands after options of a command. Where that is not known, the shell offers files."""
    for action in _offered(command):
        if action.option_strings and action.nargs != 0:
            places = "|".join(f"{name}:{option}" for option in action.option_strings)
            yield f"        {places}) offered='{' '.join(_choices(action))}' ;;"


def _fish(parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    yield _FISH.format(first_values=" ".join(_with_value(parser)))
    yield from _fish_options("", parser)
    for name, command in commands.items():
        told = (command.description or "").partition(". ")[0].rstrip(".")
        yield f"complete -c nodepool -n '__nodepool_is \"\"' -a {name} -d {_quoted(told)}\n"
        yield from _fish_options(name, command)


def _fish_options(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    condition = f"-n '__nodepool_is \"{name}\"'"
    formatter = command._get_formatter()
    for action in _offered(command):
        # The commands themselves are no value of an option.
        choices = f" -x -a {_quoted(' '.join(_choices(action)))}" if name and _choices(action) else ""
        if not action.option_strings:
            if choices:
                yield f"complete -c nodepool {condition}{choices}\n"
            continue
        names = " ".join(
            f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}" for option in action.option_strings
        )
        value = "" if action.nargs == 0 or choices else " -r -F"
        text = formatter._expand_help(action) if action.help else ""
        yield f"complete -c nodepool {condition} {names}{value}{choices} -d {_quoted(text)}\n"


def _with_value(parser: argparse.ArgumentParser) -> list[str]:
    """Options that a value follows."""
    return [option for action in parser._actions if action.nargs != 0 for option in action.option_strings]


def _offered(command: argparse.ArgumentParser) -> list[argparse.Action]:
    """Arguments of a command that its help tells of."""
    return [action for action in command._actions if action.help != argparse.SUPPRESS]


def _choices(action: argparse.Action) -> list[str]:
    return [str(choice) for choice in action.choices or ()]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


if __name__ == "__main__":
    sys.exit(program())
