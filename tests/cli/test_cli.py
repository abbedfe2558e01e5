"""The command `deniable` as a whole: light to import, plain errors, useful exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable import __version__, cli
from deniable.errors import DeniableError
from tests.cli.shell import asked


def test_importing_the_command_is_light() -> None:
    code = (
        "import sys, deniable.cli; print(sorted({'typer', 'rich', 'numpy', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version() -> None:
    assert asked("--version").strip() == __version__


@pytest.mark.parametrize("command", [[], ["curve"], ["demo"]])
def test_every_command_helps(command: list[str]) -> None:
    assert "Usage" in asked(*command, "--help")


@pytest.mark.parametrize(("missing", "extra"), [("typer", "cli"), ("rich", "cli"), ("matplotlib", "plots")])
def test_a_missing_extra_is_named_without_a_traceback(missing: str, extra: str, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; "
        f"sys.argv = ['deniable', 'curve', 'pure(epsilon=1)', '--delta', '0', '--plot', {str(tmp_path / 'x.png')!r}]; "
        "from deniable.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.returncode == 1
    assert f'pip install "deniable[{extra}]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_other_errors_of_ours_exit_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, cli.plain_errors():
        raise DeniableError("too much")
    assert caught.value.code == 1
    assert capsys.readouterr().err == "deniable: too much\n"


def test_the_command_has_one_name_however_it_is_started() -> None:
    done = subprocess.run([sys.executable, "-m", "deniable", "--help"], capture_output=True, text=True, check=True)
    assert "Usage: deniable [OPTIONS]" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    words = {"_DENIABLE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "deniable ver"}
    words |= {"COMP_WORDS": "deniable ver", "COMP_CWORD": "1", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    said = CliRunner().invoke(cli.build(), [], env=words, prog_name="deniable")
    assert "verify" in said.stdout


def test_every_command_speaks_json() -> None:
    import typer

    commands = typer.main.get_command(cli.build()).commands  # type: ignore[attr-defined]
    assert {"add", "ask", "price", "serve", "verify", "curve", "survey", "audit", "attack", "schema"} <= set(commands)
    silent = [name for name, each in commands.items() if not any("--json" in option.opts for option in each.params)]
    assert silent == ["demo"]  # a tour for people; the questions in it are asked with `ask --json`
