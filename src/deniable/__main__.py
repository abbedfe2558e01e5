"""`python -m deniable` is the command `deniable`."""

from deniable.cli import main

main()
