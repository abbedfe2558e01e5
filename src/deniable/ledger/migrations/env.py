"""What Alembic asks before it runs the steps: on which connection, and where it may note how far it came."""

from alembic import context


def run() -> None:
    """Run the steps on the connection that `upgrade` was given, within its transaction."""
    given = context.config.attributes
    context.configure(connection=given["connection"], version_table=given["version_table"])
    context.run_migrations()


# Alembic loads this file while it runs; whoever else imports it wants nothing to happen.
if hasattr(context, "config"):
    run()
