"""The curator as a service: an HTTP API over sessions and ledgers. It holds no privacy logic of its own.

Every price, every noise and every charge comes from `queries.Session` and `ledger.Ledger`; what is here is who may ask
what, where things are kept, and when an answer leaves.
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
