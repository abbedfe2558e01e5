"""The curator as a service: an HTTP API and a web console over sessions and ledgers, without privacy logic of its own.

`queries.Session` and `ledger.Ledger` compute every price, all noise and every charge. This package decides who may ask
what, where things are kept, and when an answer leaves. A request passes through these packages, in this order:

    requests      connections, the gate that every request passes, the desk that runs work in threads, the time grid
    access        bearer tokens, OpenID Connect, invitations, rate limits
    routes, console      the HTTP API, and the same in a browser
    curator       what a person may ask for, in terms of sessions, ledgers and the catalogue
    datasets      open datasets, registration, families that share a budget, protection against rollbacks
    catalogue     everything that the server stores besides ledgers
    operations    settings, processes, the server's key, what an operator may watch

Beside these packages:

    app                                   the ASGI application: all routes and pages behind the gate
    roles                                 which role may do what
    request_bodies, api_records, noted_questions      requests, answers and questions as JSON
    problems, error_words, charge_fate    errors over HTTP, and whether a question that failed was charged
    privacy_labels                        the signed page that states what a release promises
    migrations                            the tables of the catalogue, version by version
"""

from deniable.errors import require

require("server", "alembic", "argon2", "fastapi", "jinja2", "python_multipart", "sqlalchemy", "sqlglot", "uvicorn")

from deniable.server.operations.settings import Settings

__all__ = ["Settings", "app"]


def __getattr__(name: str) -> object:
    if name == "app":
        from deniable.server.app import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
