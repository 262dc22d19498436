# SPDX-License-Identifier: Apache-2.0
"""``nodepool completion``: what a shell completes after the Tab key (reference/commands 2)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Final

SHELLS: Final = ("bash", "zsh", "fish")

_BASH: Final = """\
_nodepool() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command= word words=
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case $word in
            {names}) command=$word; break ;;
        esac
    done
    case $command in
        '') words='{first}' ;;
{commands}
    esac
    case $command:$previous in
{values}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _nodepool nodepool
"""
_ZSH: Final = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def add_command(add: Callable[..., argparse.ArgumentParser], commands: Mapping[str, argparse.ArgumentParser]) -> None:
    """Add the command of this module.

    :param add: ``add_parser`` of the sub-command group.
    :param commands: name of each command -> its parser; this one is added.
    """
    parser = add(
        "completion",
        help="print what a shell needs to complete commands and options",
        description="Prints a script for a shell, which completes commands, options and their values after it.",
        epilog="example: nodepool completion bash > /etc/bash_completion.d/nodepool",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")

    def run(options: argparse.Namespace) -> int:
        print(script(options.shell, commands), end="")
        return 0

    parser.set_defaults(run=run)


def script(shell: str, commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """The script for a shell.

    :param shell: one of `SHELLS`.
    :param commands: name of each command -> its parser.
    """
    if shell == "fish":
        return "".join(f"{line}\n" for line in _fish(commands))
    return (_ZSH if shell == "zsh" else "") + _bash(commands)


def _bash(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    lines, values = [], []
    for name, parser in commands.items():
        words = [option for action in parser._actions for option in action.option_strings]
        words += [str(choice) for action in parser._actions if not action.option_strings for choice in _choices(action)]
        lines.append(f"        {name}) words='{' '.join(words)}' ;;")
        for action in parser._actions:
            if action.option_strings and _choices(action):
                places = "|".join(f"{name}:{option}" for option in action.option_strings)
                values.append(f"        {places}) words='{' '.join(_choices(action))}' ;;")
    return _BASH.format(
        names="|".join(commands),
        first=" ".join([*commands, "--help", "--version", "--debug", "-c", "-s", "-l"]),
        commands="\n".join(lines),
        values="\n".join(values),
    )


def _fish(commands: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    for name, parser in commands.items():
        yield f"complete -c nodepool -n __fish_use_subcommand -a {name} -d {_quoted(parser.description or '')}"
        condition = f"-n '__fish_seen_subcommand_from {name}'"
        for action in parser._actions:
            choices = f" -x -a {_quoted(' '.join(_choices(action)))}" if _choices(action) else ""
            if not action.option_strings:
                if choices:
                    yield f"complete -c nodepool {condition}{choices}"
                continue
            names = " ".join(
                f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                for option in action.option_strings
            )
            needs_value = "" if action.nargs == 0 or choices else " -r"
            text = (action.help or "").replace("%(default)s", str(action.default))
            yield f"complete -c nodepool {condition} {names}{needs_value}{choices} -d {_quoted(text)}"


def _choices(action: argparse.Action) -> list[str]:
    return [str(choice) for choice in action.choices or ()]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
