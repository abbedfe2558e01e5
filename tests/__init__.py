"""Tests, as a package: some libraries install a folder `tests` of their own, which would hide one that is none."""
