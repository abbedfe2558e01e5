"""What mkdocs does beside building pages: names in tables may break where words end, and search works from a file.

A page from a file may load scripts, but neither fetch JSON nor start a worker. So index and worker are written as
scripts too, and docs/look/offline.js, which starts the worker, is loaded before the theme's script.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

THEME = re.compile(r'<script src="([^"]*)assets/javascripts/bundle\.')


CELL = re.compile(r"<td.*?</td>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")


def _breakable(cell: re.Match[str]) -> str:
    return CODE.sub(lambda name: re.sub(r"(?<=\w)([._])(?=\w)", r"\1<wbr>", name[0]), cell[0])


def on_post_page(output: str, **_: Any) -> str:
    output = CELL.sub(_breakable, output)
    found = THEME.search(output)
    if found is None:
        raise ValueError("the theme's script is not where it was: search from a file would not work")
    return f'{output[: found.start()]}<script src="{found[1]}look/offline.js"></script>{output[found.start() :]}'


def on_post_build(config: Any, **_: Any) -> None:
    site = Path(config.site_dir)
    index = (site / "search" / "search_index.json").read_text("utf-8")
    (site / "search" / "search_index.js").write_text(f"var __index = {index}", "utf-8")
    [worker] = (site / "assets" / "javascripts" / "workers").glob("search.*.min.js")
    text = "\n".join(
        line for line in worker.read_text("utf-8").splitlines() if not line.startswith("//# sourceMapping")
    )
    (site / "search" / "worker.js").write_text(f"var __worker = {json.dumps(text)}", "utf-8")
