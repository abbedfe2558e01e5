"""`deniable serve`: run the server, with settings or as a demo."""

import contextlib
import errno
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from deniable.cli import plain_errors
from deniable.errors import NOTHING, InvalidParameter, LedgerUnavailable

if TYPE_CHECKING:
    from types import FrameType

    import typer

    from deniable.server.curator import Curator
    from deniable.server.roles import Role


def add(app: "typer.Typer") -> None:
    """Add the command."""
    import typer

    @app.command()
    def serve(
        demo: Annotated[
            bool, typer.Option("--demo", help="Serve a real health table, with a token for each role.")
        ] = False,
        config: Annotated[Path | None, typer.Option(help="The settings, a .toml file.")] = None,
        host: Annotated[
            str | None, typer.Option(help="The address to listen on. Default: the address in the settings.")
        ] = None,
        port: Annotated[int | None, typer.Option(help="The port; 0 takes any free one.")] = None,
        invite: Annotated[
            str | None, typer.Option(help="Print a new token for the admin of this name; the admin is added if needed.")
        ] = None,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print tokens and address as JSON, one object on one line.")
        ] = False,
    ) -> None:
        """Serve tables, budgets and ledgers over HTTP, with a console in the browser."""
        with plain_errors():
            if demo and invite is not None:
                rule = "is given with --config only; the demo prints the token of its own admin"
                raise InvalidParameter("--invite", invite, rule, "leave it out")
            if demo == (config is not None):
                raise InvalidParameter("--demo, --config", NOTHING, "give exactly one of them", "try --demo")
            with _clean_up_on_signals(), _prepared(config, host, port, invite) as (curator, tokens):
                run(curator, tokens, as_json=as_json, ends=" and deletes the demo's data" if demo else "")


@contextlib.contextmanager
def _clean_up_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit: running requests are finished, and the demo's folder is deleted."""

    def end(number: int, frame: "FrameType | None") -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, end)}
    if os.name == "posix" and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup ignores it
        # Raised as SIGTERM, for which the running server has a handler of its own.
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _prepared(
    config: Path | None, host: str | None, port: int | None, invite: str | None
) -> "Iterator[tuple[Curator, dict[Role, str]]]":
    """A curator with the settings of `config`, or of a demo in a temporary folder; and the new tokens by role."""
    from dataclasses import replace

    from deniable.server.curator import Curator
    from deniable.server.operations import security_events
    from deniable.server.operations.settings import PORT, Settings
    from deniable.server.roles import Role

    if config is not None:
        settings = Settings.read(config)
        for folder in (*settings.data, *chain.from_iterable((settings.owners or {}).values())):
            if not folder.is_dir():
                rule = f"{folder} is not a folder"
                raise InvalidParameter("data", folder.name, rule, "create it, or name the folder of the files")
        chosen = replace(settings, host=host or settings.host, port=settings.port if port is None else port)
        security_events.to_stderr()  # before the invitation, which is logged as well
        curator, tokens = Curator(chosen), {}
        if invite is not None:
            tokens[Role.ADMIN] = _invited(curator, invite)
        yield curator, tokens
        return
    from deniable.cli.demo_command import SCHEMA, table
    from deniable.server.operations import demo_server

    with tempfile.TemporaryDirectory(prefix="deniable-demo-") as place:
        folder = Path(place)
        made = demo_server.settings_in(folder, host=host or "127.0.0.1", port=PORT if port is None else port)
        curator = Curator(made)
        yield curator, demo_server.prepared(curator, table(folder).name, SCHEMA)


def _invited(curator: "Curator", name: str) -> str:
    """A new token for the admin of this name, who is added if the catalogue has no such person."""
    from deniable.server.problems import Problem
    from deniable.server.roles import Role

    known = {person.name: (person, active) for person, active in curator.catalogue.people()}
    if name in known and known[name][0].role is not Role.ADMIN:
        person, active = known[name]
        rule = f"{'is' if active else 'was'} an {person.role} here; --invite makes admins only"
        raise InvalidParameter("--invite", name, rule, "choose another name")
    try:
        if curator.catalogue.person(name) is None:
            curator.catalogue.add_person(name, Role.ADMIN)
    except Problem as problem:
        if problem.code == "exists":  # another person's name looks like this one
            raise InvalidParameter("--invite", NOTHING, problem.detail) from None
        raise LedgerUnavailable(problem.detail, "try again") from None
    return str(curator.reception.issue(name, None)["token"])


def run(curator: "Curator", tokens: "dict[Role, str]", *, as_json: bool, ends: str = "") -> None:
    """Print the tokens and the address, then serve until stopped. `ends` is the end of the line about Ctrl+C."""
    from deniable.server.operations import server_processes

    settings = curator.settings
    try:
        place = server_processes.listening(settings)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # the rest repeats the address
        taken = error.errno == errno.EADDRINUSE
        remedy = "--port 0 takes any port that is free" if taken else "--host 127.0.0.1 is this machine"
        raise OSError(error.errno, reason, f"{settings.host}:{settings.port}; {remedy}") from None
    if as_json:
        print(json.dumps({"url": server_processes.address(place), "tokens": tokens}), flush=True)
    else:
        lines = [*(f"{role:8} {token}" for role, token in tokens.items()), server_processes.address(place)]
        print("\n".join(lines), flush=True)
        if sys.stderr.isatty():  # otherwise stderr is a log
            entrance = "Open the address in a browser and sign in with one of the tokens. " if tokens else ""
            print(f"{entrance}Ctrl+C stops the server{ends}.", file=sys.stderr, flush=True)
    if curator.settings.processes == 1:
        server_processes.serve(curator, place)
    else:
        curator.close()
        server_processes.serve_in_processes(curator.settings, place)
