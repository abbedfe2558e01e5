"""The command `deniable` for tests: as another process, or without one."""

from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

from deniable import cli


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user runs it: another process, from another folder's point of view."""
    command = [sys.executable, "-m", "deniable.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")


def asked(*arguments: str) -> str:
    """What the command prints, without another process."""
    result = CliRunner().invoke(cli.build(), list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.build(), list(arguments))
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.exit_code, result.stderr
