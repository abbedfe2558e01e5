"""Checkpoints that cannot forget what was spent: one file for everything, and a journal of the steps taken since."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, final

import torch

from deniable.errors import InvalidParameter, UnreadableRecord

VERSION: Final = 1


def write(path: Path, record: dict[str, Any]) -> None:
    """All or nothing: a crash leaves the checkpoint before."""
    aside = path.with_name(f"{path.name}.part")
    with aside.open("wb") as file:
        torch.save({"deniable": VERSION, **record}, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def read(path: Path) -> dict[str, Any]:
    """A checkpoint; tensors and plain values only, so that reading one runs no code."""
    try:
        record = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError:
        raise InvalidParameter("path", str(path), "is not there") from None
    except Exception:
        raise UnreadableRecord(f"{path.name} is no checkpoint of a Trainer, or is damaged") from None
    if not isinstance(record, dict) or "deniable" not in record:
        raise UnreadableRecord(f"{path.name} is no checkpoint of a Trainer")
    if record["deniable"] > VERSION:
        raise UnreadableRecord(f"{path.name} was written by a newer version; update deniable")
    return record


@final
class Journal:
    """How many steps were begun, beside the checkpoint, one line before each step: it is never behind."""

    def __init__(self, checkpoint: Path) -> None:
        self.path = checkpoint.with_name(f"{checkpoint.name}.steps")

    @property
    def is_there(self) -> bool:
        return self.path.exists()

    def begin(self, run: str, steps: int) -> None:
        """A journal for a new checkpoint; what it knew of the same run is kept."""
        known = self.read(run) if self.is_there else 0
        self.path.write_text(f"{run}\n{max(steps, known)}\n")

    def note(self, steps: int) -> None:
        """One more step; nothing where the journal was taken away, as then its checkpoint is refused."""
        if not self.is_there:
            return
        with self.path.open("a") as file:
            file.write(f"{steps}\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self, run: str) -> int:
        """The most steps that were begun; 0 if the journal is of another run."""
        try:
            first, *numbers = self.path.read_text().split()
        except (FileNotFoundError, ValueError):
            remedy = "put it back beside the checkpoint: without it steps taken since would be forgotten"
            raise InvalidParameter(
                "path", self.path.name, "the journal of this checkpoint is missing", remedy
            ) from None
        return max((int(each) for each in numbers), default=0) if first == run else 0
