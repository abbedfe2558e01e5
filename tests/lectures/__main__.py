"""Write the table of all items."""

from __future__ import annotations

from tests.lectures.page import TABLE, table

TABLE.write_text(table(), encoding="utf-8")
print(f"written: {TABLE.name}")
