"""The command `deniable`: each subcommand is a few lines over the library.

    deniable ask visits.csv "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward" --unit patient_id --rows 20 ...
    deniable synthesize visits.csv --columns ward,age --epsilon 0.5 --rows 1000 --out synthetic.parquet
    deniable standing visits.csv daily "SELECT COUNT(*) AS n FROM visits" --by day --epsilon 1 ...
    deniable curve "gaussian(sigma=50)**1000 * laplace(scale=4)" --delta 1e-6
    deniable survey answers.csv --question smokes --epsilon 1 --out reports.csv
    deniable attack reconstruction --epsilon 0.1 1 10
    deniable audit mylibrary:noisy_count --neighbours 0 1 --claim "laplace(scale=1)"
    deniable serve --demo
    deniable add visits.csv --schema visits.yaml --budget 1 --delta 1e-6 --url https://...
    deniable verify ledger.jsonl --key owner.pub
    deniable rotate owned.ledger --key owner.key --to new.key
    deniable moved visits.csv.ledger --reason "a new disk"
    deniable demo --out demo-output

    question_commands, shell_accounts      ask, price, bounds, schema, report; and the account that a file spends from
    synthesize_command, survey_command     synthesize, survey
    standing_command, plan_command         standing, plan
    curve_command, evidence_commands       curve; attack and audit
    ledger_commands                        verify, verify-label, rotate, moved
    serve_command, add_command             serve, add
    demo_command, curve_tour               demo, and its second half
    account_options, help_layout           options that commands share; the layout of --help

Each module with commands has a function `add(app)`, which adds its commands to the application; `build()` calls all
of them. A command parses its options, calls a function outside of `add`, and prints what it returns.

Exit codes: 0 done · 1 not possible (a missing extra, a file that cannot be written, a zoo with misses) · 2 wrong usage
· 3 an audit refuted the claim, or a ledger was changed.
Importing this module loads neither typer nor rich; they come with the extra `cli`, and are loaded when a command runs.
"""

import contextlib
import errno
import json
import math
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

from deniable.errors import (
    DeniableError,
    InvalidOperation,
    InvalidParameter,
    LedgerMismatch,
    MissingExtra,
    OutsideTheorem,
    QuestionRefused,
    UnreadableRecord,
)

if TYPE_CHECKING:
    import typer

ASKED_WRONGLY = InvalidParameter, InvalidOperation, OutsideTheorem, QuestionRefused, LedgerMismatch, UnreadableRecord
"""Errors of the caller: exit code 2."""

WHAT_HELPS: Final = {
    errno.ENOENT: "check the path: the file, or a folder on the way to it, is missing",
    errno.ENOTDIR: "check the path: a part of it is a file, not a folder",
    errno.EISDIR: "name a file, not a folder",
    errno.EACCES: "choose a file or folder that you may read and write, or change its permissions",
    errno.EPERM: "choose a file or folder that you may read and write, or change its permissions",
    errno.EROFS: "choose a folder on a disk that can be written",
    errno.ENOSPC: "free some space on the disk, then run it again",
}


def main() -> None:
    """Run the command of `sys.argv`; ends with SystemExit."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without ε still gets numbers
    if sys.stdout is None:
        # Started with >&-. An answer would be charged and lost, and the next file to be opened would take the place of
        # the standard output.
        lost = "the standard output is closed, so the answer would be lost; nothing was done. "
        print(f"deniable: {lost}Redirect it to /dev/null if you do not need it", file=sys.stderr)
        raise SystemExit(1)
    with plain_errors():
        build()(prog_name="deniable")  # the same name under python -m, for shell completion


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Print an error as one message on stderr, without a traceback, and exit with its code."""
    try:
        yield
    except DeniableError as error:
        print("\n".join([f"deniable: {error}", *getattr(error, "__notes__", ())]), file=sys.stderr)
        raise SystemExit(2 if isinstance(error, ASKED_WRONGLY) else 1) from None
    except BrokenPipeError:
        # The reader closed the pipe (`... --json | head`). The rest of the output may have said that a claim is
        # refuted, so the exit code must not be 0. Shells report 141 = 128 + SIGPIPE for a program that a closed pipe
        # ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except OSError as error:
        print(f"deniable: {_in_words(error)}", file=sys.stderr)
        raise SystemExit(1) from None


def _in_words(error: OSError) -> str:
    """An error of the operating system as one line: the error, the file if it is known, and what to do."""
    words = str(error.strerror or error)
    if error.filename:
        words += f": {os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename}"
    helps = WHAT_HELPS.get(error.errno or 0)
    return words if helps is None else f"{words}; {helps}"


def build() -> "typer.Typer":
    """The application with all commands. Raises MissingExtra if typer or rich is not installed."""
    try:
        import rich  # noqa: F401
        import typer
    except ImportError as error:
        raise MissingExtra(error.name or "typer", "cli") from None

    from deniable.cli import (
        add_command,
        curve_command,
        demo_command,
        evidence_commands,
        ledger_commands,
        plan_command,
        question_commands,
        serve_command,
        standing_command,
        survey_command,
        synthesize_command,
    )
    from deniable.cli.help_layout import Commands

    app = Commands()

    def print_version(wanted: bool) -> None:
        if wanted:
            from deniable import __version__

            print(__version__)
            raise typer.Exit

    @app.callback()
    def deniable(
        version: Annotated[
            bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=print_version)
        ] = False,
    ) -> None:
        """Differential privacy: ask tables, keep a budget, and see what a guarantee means."""

    for room in (  # in the order of --help
        curve_command,
        survey_command,
        evidence_commands,
        demo_command,
        question_commands,
        standing_command,
        plan_command,
        synthesize_command,
        add_command,
        ledger_commands,
        serve_command,
    ):
        room.add(app)
    return app


def print_json(record: Any) -> None:
    """Print a record on stdout as strict JSON, with infinities as strings (see `portable`)."""
    print(json.dumps(portable(record), ensure_ascii=False, indent=2, allow_nan=False))


def portable(value: Any) -> Any:
    """The same value with infinities as the string "Infinity": JSON has no infinity, and null would compare as 0.

    >>> portable({"epsilon": float("inf"), "delta": 0.0})
    {'epsilon': 'Infinity', 'delta': 0.0}
    """
    if isinstance(value, dict):
        return {key: portable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [portable(one) for one in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
