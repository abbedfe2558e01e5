"""Draws the map of the house and the lives of a question, a curve, a training step and a request into docs/pictures:
python docs/draw_house.py [name ...]

Rooms, doors and rooms within rooms come from the import graph; where a room stands on the page is written here. The
steps of the lives are in docs/house_lives.py. Text stays text in these files, so the same source gives the same bytes.
"""

from __future__ import annotations

import functools
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from textwrap import wrap

import grimp
from house_lives import LIVES, Life, Step

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
WIDTH = 900
SANS, MONO = "Helvetica, Arial, 'Liberation Sans', sans-serif", "Menlo, Consolas, 'DejaVu Sans Mono', monospace"
INK, GREY, LINE = "#1b1f24", "#57606a", "#8c959f"
TINTS = {
    "cli": "#eaeef2",
    "server": "#ffe3d5",
    "client": "#ffe3d5",
    "transport": "#ffe3d5",
    "learn": "#e5f6d0",
    "attacks": "#fbdfe6",
    "testing": "#fbdfe6",
    "audit": "#fbdfe6",
    "queries": "#d8ecff",
    "plots": "#eaeef2",
    "ledger": "#fff0b8",
    "tables": "#d8ecff",
    "synth": "#d8ecff",
    "mechanisms": "#e9e0ff",
    "local": "#e9e0ff",
    "units": "#d3f3ec",
    "curves": "#d3f3ec",
    "noise": "#f9d4f5",
}
"""The colour of each room; rooms that serve one purpose share it."""

FOUNDATION = ("arguments", "numbers", "csv_structure", "errors", "doors")
"""Rooms of one file that all others may use: their doors are left out of the map, not of the table of doors."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where a room stands on the map: its left edge, its storey, its width; and what it is for."""

    left: int
    storey: int
    width: int
    purpose: str


ROOMS = {
    "cli": Room(330, 0, 240, "the commands: ask, price, audit, serve …"),
    "server": Room(170, 1, 230, "the curator as a service: API, console, roles"),
    "learn": Room(420, 1, 200, "training plans, torch trainer, estimators"),
    "attacks": Room(640, 1, 240, "what happens without privacy: linkage, reconstruction …"),
    "client": Room(20, 1, 130, "dn.connect: a session over HTTP"),
    "testing": Room(710, 2, 170, "checks with stated error rates"),
    "transport": Room(20, 3, 130, "requests, retries"),
    "queries": Room(170, 3, 400, "questions: SQL and frames → one plan → engines → noisy answers"),
    "audit": Room(620, 3, 260, "evidence: certified lower bounds, the zoo"),
    "plots": Room(620, 4, 260, "figures: what to draw, apart from how"),
    "ledger": Room(20, 5, 180, "budgets, entries, stores"),
    "tables": Room(216, 5, 150, "what an owner declares"),
    "synth": Room(382, 5, 150, "fits, synthetic rows"),
    "mechanisms": Room(548, 5, 170, "statistic, noise, curve"),
    "local": Room(734, 5, 146, "every person randomises"),
    "units": Room(20, 6, 346, "unit of privacy, sensitivity, guarantee"),
    "curves": Room(20, 7, 550, "what is promised: pure maths, composed by * and **"),
    "noise": Room(620, 7, 260, "exact samplers, cryptographic bits"),
}
"""All rooms that have a box of their own. The script refuses a room that it does not know."""


@dataclass(slots=True)
class Sheet:
    """An SVG file that is being written, and where its texts lie."""

    height: float = 0
    parts: list[str] = field(default_factory=list)
    texts: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    """Left, top, right, bottom and words of each level text; widths are those of a wide font."""

    def text(
        self, x: float, y: float, words: str, *, size: float = 13, fill: str = INK, mono: bool = False, **more: str
    ) -> None:
        """Words whose baseline begins at (x, y); `anchor="middle"` centres them there."""
        anchor = more.pop("anchor", "start")
        width = len(words) * size * (0.603 if mono else 0.56)
        left = x - width / 2 if anchor == "middle" else x
        if "transform" not in more:
            self.texts.append((left, y - size, left + width, y + 0.25 * size, words))
        extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
        extra += ' class="m"' if mono else ""
        extra += f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{fill}"{extra}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        size = f'width="{width:g}" height="{height:g}" rx="{min(6, height / 5):g}"'
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" {size} fill="{fill}" stroke="{LINE}"/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """A line that leaves and arrives upright, with a head."""
        middle = (y + to_y) / 2
        path = f"M{x:g} {y:g}C{x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y - 6:g}"
        self.parts.append(f'<path d="{path}" fill="none" stroke="{GREY}" stroke-width="1.4"/>')
        self.parts.append(f'<path d="M{to_x - 4:g} {to_y - 8:g}h8l-4 8z" fill="{GREY}"/>')

    def svg(self, title: str) -> str:
        """The file. White ground: the site turns the colours of SVG round in the dark."""
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:g}" width="{WIDTH}" '
                f'height="{self.height:g}" role="img" aria-label="{escape(title)}" font-family="{SANS}">',
                f"<title>{escape(title)}</title>",
                f"<style>.m{{font-family:{MONO}}}</style>",
                f'<rect width="{WIDTH}" height="{self.height:g}" fill="#ffffff"/>',
                *self.parts,
                "</svg>\n",
            )
        )


# -- the import graph ------------------------------------------------------------------------------------------------


@cache
def graph() -> grimp.ImportGraph:
    """Who imports what, as `lint-imports` sees it: also inside functions, and for names of types."""
    return grimp.build_graph("deniable", cache_dir=None)


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else "deniable"


def order() -> list[str]:
    """All rooms from top to bottom, as the contract "Doors point down only" in pyproject.toml has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each["name"] == "Doors point down only"]
    return [room.strip() for line in layers for room in line.split("|") if room.strip() != "__main__"]


def doors() -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports something of the second."""
    return {
        (_room(module), _room(target))
        for module in graph().modules
        for target in graph().find_modules_directly_imported_by(module)
        if _room(module) != _room(target) and {_room(module), _room(target)}.isdisjoint({"deniable", "__main__"})
    }


def shortest(pairs: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The doors that cannot be replaced by a way through other doors (the transitive reduction)."""
    after = {start: {end for begin, end in pairs if begin == start} for start, _ in pairs}

    def reached(start: str) -> set[str]:
        return {further for end in after.get(start, ()) for further in ({end} | reached(end))}

    return sorted(
        (start, end) for start, end in pairs if not any(end in reached(other) for other in after[start] - {end})
    )


def inside(room: str) -> list[str]:
    """The rooms within a room, by name."""
    children = graph().find_children(f"deniable.{room}")
    return sorted(each.rpartition(".")[2] for each in children if graph().find_children(each))


# -- the map ---------------------------------------------------------------------------------------------------------

_GAP = 44


def _lines(name: str) -> tuple[list[str], list[str]]:
    room = ROOMS[name]
    most = room.width - 20
    within = [each for each in inside(name) if each != "migrations"]
    return wrap(room.purpose, int(most / 6.8)), wrap(" · ".join(within), int(most / 6.7))


def _box_height(name: str) -> float:
    purpose, within = _lines(name)
    return 30 + 16 * len(purpose) + 15 * len(within) + 6


def _storeys() -> list[float]:
    """The upper edge of each storey, and the lower edge of the last."""
    edges = [64.0]
    for storey in range(1 + max(room.storey for room in ROOMS.values())):
        edges.append(edges[-1] + _GAP + max(_box_height(n) for n, room in ROOMS.items() if room.storey == storey))
    return edges


def house_rooms() -> Sheet:
    """Every room as a box, each above the rooms that it imports."""
    known = {*ROOMS, *FOUNDATION}
    if known != set(order()):
        raise ValueError(f"give these rooms a place in ROOMS of docs/draw_house.py: {sorted(known ^ set(order()))}")
    sheet, tops = Sheet(), _storeys()
    sheet.text(20, 28, "Rooms of src/deniable, and the doors between them", size=18, font_weight="bold")
    sheet.text(20, 47, "An arrow points to an imported room. An arrow that a chain of others implies is left out.")
    drawn = shortest({pair for pair in doors() if set(pair).isdisjoint(FOUNDATION)})
    down = {n: sorted((b for a, b in drawn if a == n), key=_centre) for n in ROOMS}
    up = {n: sorted((a for a, b in drawn if b == n), key=_centre) for n in ROOMS}
    for start, end in drawn:
        x = _spread(start, down[start].index(end), len(down[start]))
        to_x = _spread(end, up[end].index(start), len(up[end]))
        bottom = tops[ROOMS[start].storey] + _box_height(start)
        sheet.arrow(x, bottom, to_x, tops[ROOMS[end].storey])
    for name, room in ROOMS.items():
        top = tops[room.storey]
        purpose, within = _lines(name)
        sheet.box(room.left, top, room.width, _box_height(name), TINTS[name])
        sheet.text(room.left + 10, top + 20, name, size=15, font_weight="bold")
        for number, line in enumerate(purpose):
            sheet.text(room.left + 10, top + 38 + 16 * number, line, size=12)
        for number, line in enumerate(within):
            y = top + 38 + 16 * len(purpose) + 15 * number
            sheet.text(room.left + 10, y, line, size=11, fill=GREY, mono=True)
    sheet.box(20, tops[-1], WIDTH - 40, 50, "#f6f8fa")
    sheet.text(30, tops[-1] + 20, "  ".join(FOUNDATION), size=13, mono=True, font_weight="bold")
    words = "the ground floor: checked arguments, one rounding, the structure of CSV, one exception tree, lazy doors"
    sheet.text(30, tops[-1] + 39, words, size=12)
    sheet.height = tops[-1] + 70
    return sheet


def _centre(name: str) -> float:
    return ROOMS[name].left + ROOMS[name].width / 2


def _spread(name: str, number: int, count: int) -> float:
    """Arrows at one edge of a box are spread over it evenly."""
    return ROOMS[name].left + ROOMS[name].width * (number + 1) / (count + 1)


def house_doors() -> Sheet:
    """All doors as a table: a row imports the columns with a dot."""
    rooms, found, sheet = order(), doors(), Sheet()
    left, top, side = 190, 150, 30
    sheet.text(20, 28, "All doors: the room of a row imports the rooms with a dot", size=18, font_weight="bold")
    sheet.text(
        20, 47, "Rows and columns run from the top of the house to its ground. No dot may lie left of the grey steps."
    )
    for number, room in enumerate(rooms):
        x, y = left + side * number, top + side * number
        fill = TINTS.get(room, "#f6f8fa")
        sheet.parts.append(f'<rect x="20" y="{y}" width="{WIDTH - 40}" height="{side - 2}" fill="{fill}"/>')
        sheet.parts.append(f'<rect x="{x}" y="{y}" width="{side - 2}" height="{side - 2}" fill="{LINE}"/>')
        sheet.text(30, y + 19, room, size=13, mono=True)
        turned = f"rotate(-50 {x + 12} {top - 8})"
        sheet.text(x + 12, top - 8, room, size=12, mono=True, transform=turned)
    for start, end in sorted(found):
        x, y = left + side * rooms.index(end) + 14, top + side * rooms.index(start) + 14
        sheet.parts.append(f'<circle cx="{x}" cy="{y}" r="6" fill="{INK}"/>')
    sheet.height = top + side * len(rooms) + 20
    return sheet


# -- lives -----------------------------------------------------------------------------------------------------------

_CARD, _RIGHT = 62, 452


def _card(step: Step) -> tuple[list[str], float]:
    words = wrap(step.words, 56)
    return words, max(30 + 17 * len(words), 14 + 17 * len(step.places)) + 8


def life(what: Life) -> Sheet:
    """The steps from top to bottom; between two of them, what the first hands to the second."""
    sheet, y = Sheet(), 76.0
    sheet.text(20, 28, what.title, size=18, font_weight="bold")
    sheet.text(20, 48, what.begins)
    rooms = list(dict.fromkeys(place.partition(".")[0] for step in what.steps for place in step.places))
    for number, step in enumerate(what.steps, start=1):
        words, height = _card(step)
        sheet.box(_CARD, y, WIDTH - _CARD - 20, height, TINTS[step.room])
        sheet.parts.append(f'<circle cx="36" cy="{y + 20:g}" r="14" fill="{INK}"/>')
        sheet.text(36, y + 25, str(number), fill="#ffffff", anchor="middle", font_weight="bold")
        sheet.text(_CARD + 12, y + 22, step.title, size=14.5, font_weight="bold")
        for line, text in enumerate(words):
            sheet.text(_CARD + 12, y + 41 + 17 * line, text, size=12.5)
        for line, place in enumerate(step.places):
            room = place.partition(".")[0]
            if room != step.room:
                sheet.box(_RIGHT + 6, y + 12 + 17 * line, 11, 11, TINTS[room])
            sheet.text(_RIGHT + 24, y + 22 + 17 * line, place.replace(":", "."), size=11.5, mono=True)
        y += height
        if number < len(what.steps):
            sheet.arrow(120, y, 120, y + 30)
            sheet.text(136, y + 20, step.hands, size=12.5, fill=GREY, font_style="italic")
            y += 30
    y += 26
    sheet.text(20, y, what.ends)
    y += 12
    for number, room in enumerate(rooms):
        x = 20 + 140 * number
        sheet.box(x, y, 14, 14, TINTS[room])
        sheet.text(x + 20, y + 12, room, size=12)
    sheet.height = y + 30
    return sheet


def pictures() -> Iterator[tuple[str, str, Callable[[], Sheet]]]:
    """Name of the file, title, and what draws it."""
    yield "house-rooms.svg", "The rooms of the house and the doors between them", house_rooms
    yield "house-doors.svg", "All doors between rooms", house_doors
    for each in LIVES:
        yield f"house-{each.name}.svg", each.title, functools.partial(life, each)


PICTURES = tuple(name for name, *_ in pictures())


def main(names: Sequence[str]) -> None:
    """Draw all pictures, or those that are named."""
    for name, title, made in pictures():
        if not names or name.removesuffix(".svg") in names:
            (FOLDER / name).write_text(made().svg(title), encoding="utf-8")
            print(f"docs/pictures/{name}")


if __name__ == "__main__":
    main(sys.argv[1:])
