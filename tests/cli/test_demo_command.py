"""`deniable demo`: every stop is there, and three pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from deniable.cli import curve_tour, demo_command
from tests.cli.shell import asked


@pytest.mark.slow
def test_the_tour_ends_with_pictures(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    text = asked("demo", "--out", str(out))
    for number in range(1, len(demo_command.STOPS) + len(curve_tour.TOUR) + 1):
        assert f"\n{number}  " in text
    pictures = sorted(path.name for path in out.glob("*.png"))
    assert pictures == ["answers.png", "composition.png", "curves.png"]
    assert all((out / name).stat().st_size > 20_000 for name in pictures)
    assert "[[" not in text
    assert "]]" not in text
