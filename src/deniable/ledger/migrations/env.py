"""Alembic's entry point: it runs the migrations on the connection that `upgrade` gave it."""

from alembic import context


def run() -> None:
    """Run the migrations in the transaction of the connection that `upgrade` passed."""
    given = context.config.attributes
    context.configure(connection=given["connection"], version_table=given["version_table"])
    context.run_migrations()


# Alembic executes this file. Any other import must do nothing.
if hasattr(context, "config"):
    run()
