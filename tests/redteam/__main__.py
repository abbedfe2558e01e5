"""Runs every attack and prints what came of it: python -m tests.redteam [--page] [arguments for pytest].

The table is made from the cases that tests carry and from what pytest reports, never by hand. With --page it is also
written into docs/redteam.md.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import groupby

import pytest
from rich.console import Console
from rich.table import Table

from tests.redteam.cases import ROOT, Case, every

PAGE = ROOT / "docs" / "redteam.md"
BEGIN, END = "<!-- cases: made by python -m tests.redteam --page -->", "<!-- end of cases -->"


class Watch:
    """Counts what became of the tests of each case."""

    def __init__(self, cases: list[Case]) -> None:
        self.whose = {test: case.code for case in cases for test in case.tests}
        self.found: dict[str, Counter[str]] = {case.code: Counter() for case in cases}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        code = self.whose.get(report.nodeid.partition("[")[0].partition("@")[0])
        if code is not None and (report.when == "call" or report.outcome != "passed"):
            self.found[code][report.outcome] += 1

    def result(self, case: Case) -> str:
        """In a word: held, broken, or not tried."""
        said = self.found[case.code]
        if said["failed"]:
            return "BROKEN"
        return "held" if said["passed"] else "not tried"


def table(cases: list[Case], watch: Watch) -> Table:
    """For people at a terminal."""
    shown = Table(title="Red team", show_lines=False, title_justify="left")
    for name in ("case", "tried", "must be", "result", "tests"):
        shown.add_column(name, overflow="fold", justify="right" if name == "tests" else "left")
    colours = {"held": "green", "BROKEN": "bold red", "not tried": "yellow"}
    for group, those in groupby(cases, key=lambda each: each.group):
        shown.add_section()
        shown.add_row("", f"[bold]{group}[/bold]")
        for each in those:
            result, many = watch.result(each), str(watch.found[each.code].total())
            shown.add_row(each.code, each.tried, each.holds, f"[{colours[result]}]{result}[/]", many)
    return shown


def written(cases: list[Case], watch: Watch) -> str:
    """The same for the page."""
    lines = []
    for group, those in groupby(cases, key=lambda each: each.group):
        lines += ["", f"### {group}", "", "| | tried | must be | result | tests |", "|---|---|---|---|--:|"]
        for each in those:
            words = [each.code, each.tried, each.holds, watch.result(each), str(watch.found[each.code].total())]
            lines.append("| " + " | ".join(word.replace("|", "\\|") for word in words) + " |")
    return "\n".join(lines) + "\n\n"


def on_page() -> dict[str, tuple[str, str]]:
    """What the page says of each case: tried, and what must be."""
    inside = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    found = {}
    for line in inside.splitlines():
        cells = [each.strip().replace("\\|", "|") for each in line.replace("\\|", "\0").split("|")[1:-1]]
        if len(cells) == 5 and cells[0] and cells[0][0].isalpha():
            code, tried, holds = (each.replace("\0", "|") for each in cells[:3])
            found[code] = (tried, holds)
    return found


def main(arguments: list[str]) -> int:
    cases = every()
    watch = Watch(cases)
    files = sorted({test.partition("::")[0] for case in cases for test in case.tests if "/redteam/" not in test})
    chosen = [test for case in cases for test in case.tests if test.partition("::")[0] in files]
    more = [each for each in arguments if each != "--page"]
    code = pytest.main(["-q", "--no-header", "tests/redteam", *chosen, *more], plugins=[watch])
    Console(width=None if sys.stdout.isatty() else 160).print(table(cases, watch))
    results = Counter(watch.result(each) for each in cases)
    tests = sum(each.total() for each in watch.found.values())
    print(f"{len(cases)} cases, {tests} tests: " + ", ".join(f"{many} {name}" for name, many in results.items()))
    if "--page" in arguments:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + written(cases, watch) + END + rest.partition(END)[2], "utf-8")
    return int(code)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
