"""`deniable serve`: the curator as a service."""

import contextlib
import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from deniable.errors import InvalidParameter, MissingExtra

if TYPE_CHECKING:
    import typer

    from deniable.server.curator import Curator
    from deniable.server.roles import Role


def add(app: "typer.Typer") -> None:
    """The command of this room."""
    import typer

    from deniable.cli import plain_errors

    @app.command()
    def serve(
        demo: Annotated[bool, typer.Option("--demo", help="A real health table, and a token for each role.")] = False,
        config: Annotated[Path | None, typer.Option(help="A .toml file of settings.")] = None,
        host: Annotated[str | None, typer.Option(help="Where to listen; else as the settings say.")] = None,
        port: Annotated[int | None, typer.Option(help="0 takes any free port.")] = None,
        invite: Annotated[
            str | None, typer.Option(help="Print a new token for an admin of this name, made if there is none.")
        ] = None,
    ) -> None:
        """Serve tables, budgets and ledgers over HTTP, with a console in the browser."""
        with plain_errors():
            if demo == (config is not None):
                raise InvalidParameter("--demo, --config", demo, "give exactly one of them", "try --demo")
            for package in ("fastapi", "uvicorn", "argon2", "sqlalchemy"):
                if importlib.util.find_spec(package) is None:
                    raise MissingExtra(package, "server")
            with _prepared(config, host, port, invite) as curator:
                run(curator)


@contextlib.contextmanager
def _prepared(config: Path | None, host: str | None, port: int | None, invite: str | None) -> "Iterator[Curator]":
    from dataclasses import replace

    from deniable.server.curator import Curator
    from deniable.server.roles import Role
    from deniable.server.settings import PORT, Settings

    if config is not None:
        settings = Settings.read(config)
        chosen = replace(settings, host=host or settings.host, port=settings.port if port is None else port)
        curator = Curator(chosen)
        if invite is not None:
            if curator.catalogue.person(invite) is None:
                curator.catalogue.add_person(invite, Role.ADMIN)
            _say({Role.ADMIN: curator.issue(invite, None)["token"]})
        yield curator
        return
    from deniable.cli.demo import SCHEMA, table
    from deniable.server import demo

    with tempfile.TemporaryDirectory(prefix="deniable-demo-") as place:
        folder = Path(place)
        made = demo.settings_in(folder, host=host or "127.0.0.1", port=PORT if port is None else port)
        curator = Curator(made)
        _say(demo.prepared(curator, table(folder).name, SCHEMA))
        yield curator


def _say(tokens: "dict[Role, str]") -> None:
    for role, token in tokens.items():
        print(f"{role:8} {token}", flush=True)


def run(curator: "Curator") -> None:
    """Serve until somebody says stop."""
    from deniable.server import processes

    place = processes.listening(curator.settings)
    print(processes.address(place), flush=True)
    if curator.settings.processes == 1:
        processes.serve(curator, place)
    else:
        curator.close()
        processes.serve_in_processes(curator.settings, place)
