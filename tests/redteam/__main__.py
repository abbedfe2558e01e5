"""Runs every attack and prints what came of it: python -m tests.redteam [--page] [arguments for pytest].

The table is made from the cases that tests carry and from what pytest reports, never by hand. With --page it is also
written into docs/redteam.md.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from tests.redteam.cases import ROOT, Case, every

PAGE = ROOT / "docs" / "redteam.md"
BEGIN, END = "<!-- cases: made by python -m tests.redteam --page -->", "<!-- end of cases -->"


class Results:
    """What became of the tests of each case."""

    def __init__(self, cases: list[Case]) -> None:
        self.whose = {test: case.code for case in cases for test in case.tests}
        self.found: dict[str, Counter[str]] = {case.code: Counter() for case in cases}

    def add(self, test: str, outcome: str) -> None:
        """One test, "path::name[parameters]", that passed, failed or was skipped."""
        code = self.whose.get(test.partition("[")[0])
        if code is not None:
            self.found[code][outcome] += 1

    def read(self, report: Path) -> None:
        """What pytest wrote with --junitxml."""
        for test in ElementTree.parse(report).iter("testcase"):
            failed = any(test.find(kind) is not None for kind in ("failure", "error"))
            outcome = "failed" if failed else "skipped" if test.find("skipped") is not None else "passed"
            self.add(f"{test.attrib['classname'].replace('.', '/')}.py::{test.attrib['name']}", outcome)

    def result(self, case: Case) -> str:
        """In a word: held, broken, or not tried."""
        said = self.found[case.code]
        if said["failed"]:
            return "BROKEN"
        return "held" if said["passed"] else "not tried"

    def many(self, case: Case) -> int:
        """How many tests were run."""
        return self.found[case.code].total() - self.found[case.code]["skipped"]


def table(cases: list[Case], results: Results) -> Table:
    """For people at a terminal."""
    shown = Table(title="Red team", show_lines=False, title_justify="left")
    for name in ("case", "tried", "must be", "result", "tests"):
        shown.add_column(name, overflow="fold", justify="right" if name == "tests" else "left")
    colours = {"held": "green", "BROKEN": "bold red", "not tried": "yellow"}
    for group, those in groupby(cases, key=lambda each: each.group):
        shown.add_section()
        shown.add_row("", f"[bold]{group}[/bold]")
        for each in those:
            result, many = results.result(each), str(results.many(each))
            shown.add_row(each.code, each.tried, each.holds, f"[{colours[result]}]{result}[/]", many)
    return shown


def written(cases: list[Case], results: Results, before: dict[str, list[str]]) -> str:
    """The same for the page. What was not tried this time keeps what `before`, the page's rows so far, say of it."""
    lines = []
    for group, those in groupby(cases, key=lambda each: each.group):
        lines += ["", f"### {group}", "", "| | tried | must be | result | tests |", "|---|---|---|---|--:|"]
        for each in those:
            words = [each.code, each.tried, each.holds, results.result(each), str(results.many(each))]
            kept = before.get(each.code, words)
            shown = kept if words[3] == "not tried" and kept[:3] == words[:3] else words
            lines.append("| " + " | ".join(word.replace("|", "\\|") for word in shown) + " |")
    return "\n".join(lines) + "\n\n"


def on_page() -> dict[str, list[str]]:
    """The rows of the page, by code: code, tried, what must be, result, how many tests."""
    inside = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    found = {}
    for line in inside.splitlines():
        cells = [each.strip().replace("\0", "|") for each in line.replace("\\|", "\0").split("|")[1:-1]]
        if len(cells) == 5 and cells[0] and cells[0][0].isalpha():
            found[cells[0]] = cells
    return found


def main(arguments: list[str]) -> int:
    cases = every()
    results = Results(cases)
    elsewhere = [test for case in cases for test in case.tests if "/redteam/" not in test]
    more = [each for each in arguments if each != "--page"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "tests/redteam", *elsewhere, *more]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        results.read(report)
    Console(width=None if sys.stdout.isatty() else 160).print(table(cases, results))
    totals = Counter(results.result(each) for each in cases)
    tests = sum(results.many(each) for each in cases)
    print(f"{len(cases)} cases, {tests} tests: " + ", ".join(f"{many} {name}" for name, many in totals.items()))
    if "--page" in arguments:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(
            before + BEGIN + "\n" + written(cases, results, on_page()) + END + rest.partition(END)[2], "utf-8"
        )
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
