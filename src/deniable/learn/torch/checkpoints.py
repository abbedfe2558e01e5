"""Checkpoints of training, which lose count of no step: a file with the state, and a journal of the steps since."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import nn

from deniable.errors import InvalidOperation, InvalidParameter, UnreadableRecord
from deniable.learn.plans import Plan

VERSION: Final = 1


def write(path: Path, record: dict[str, Any]) -> None:
    """Write atomically: after a crash, the previous checkpoint is still there."""
    if not path.parent.is_dir():
        raise InvalidParameter("path", str(path), "is in a folder that does not exist", "make the folder first")
    if path.is_dir():
        raise InvalidParameter("path", str(path), "is a folder", "name a file in it")
    aside = path.with_name(f"{path.name}.part")
    with aside.open("wb") as file:
        torch.save({"deniable": VERSION, **record}, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Read a checkpoint. Only tensors and plain values are accepted, so that reading one runs no code."""
    try:
        record = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError:
        raise InvalidParameter("path", str(path), "does not exist") from None
    except Exception:  # torch and pickle raise anything on damaged bytes
        raise UnreadableRecord(f"{path.name} is not a checkpoint of a Trainer, or is damaged") from None
    if not isinstance(record, dict) or "deniable" not in record:
        raise UnreadableRecord(f"{path.name} is not a checkpoint of a Trainer")
    if record["deniable"] > VERSION:
        raise UnreadableRecord(f"{path.name} was written by a newer version; update deniable")
    return record


def check_plan_of(path: Path, record: dict[str, Any], plan: Plan, optimizer: torch.optim.Optimizer) -> None:
    """Raise if a checkpoint is of another plan or another kind of optimizer."""
    for name, mine in (("plan", plan.in_full()), ("noise", plan.calibrated())):
        if record[name] != mine:
            rule = f"belongs to another {name}: {record[name]}"
            raise InvalidParameter("path", path.name, rule, "make the trainer with the plan of the checkpoint")
    if record.get("kind", kind := type(optimizer).__name__) != kind:
        rule = f"has the state of {record['kind']}, but this trainer's optimizer is {kind}"
        raise InvalidParameter("path", path.name, rule, "make the trainer with the optimizer of the checkpoint")


def check_fits(path: Path, record: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise, before anything is changed, if names or shapes of a checkpoint do not fit the model and the optimizer."""
    mine, theirs = _shapes(model.state_dict()), _shapes(record["model"])
    for name in sorted(mine.keys() | theirs.keys()):
        if name not in theirs or name not in mine:
            rule = f"lacks {name!r}, which the model has" if name in mine else f"has {name!r}, which the model lacks"
        elif mine[name] != theirs[name]:
            rule = f"has {name!r} of shape {theirs[name]}, but the model has shape {mine[name]}"
        else:
            continue
        raise InvalidParameter("path", path.name, rule, "make the trainer with the model of the checkpoint")
    sizes = [len(group["params"]) for group in record["optimizer"]["param_groups"]]
    held = names_in(optimizer, model)
    if sizes != [len(group) for group in held] or record.get("names", held) != held:
        rule = "has the state of an optimizer with other parameters, other groups or another order"
        raise InvalidParameter("path", path.name, rule, "make the optimizer as it was made for the checkpoint")


def names_in(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[list[str]]:
    """The names of an optimizer's parameters, by group. The optimizer's own state has only numbers."""
    names = {id(each): name for name, each in model.named_parameters()}
    return [[names[id(each)] for each in group["params"]] for group in optimizer.param_groups]


def journals(checkpoint: Path, record: dict[str, Any]) -> dict[Path, Journal]:
    """Checkpoint -> journal, for all checkpoints of one run: `checkpoint` itself, and the others that still exist."""
    own = checkpoint.resolve()
    known = {each: Journal(each, record["run"]) for each in (own, *map(Path, record["journals"]))}
    return {each: journal for each, journal in known.items() if each == own or journal.is_there}


def _shapes(state: dict[str, Any]) -> dict[str, tuple[int, ...] | None]:
    return {name: tuple(each.shape) if isinstance(each, torch.Tensor) else None for name, each in state.items()}


@final
class Journal:
    """The number of steps begun since a checkpoint: a file beside it, with one line written before each step.

    Two trainers that resume from one checkpoint would take the same steps twice and count them once. So each line names
    its writer, and a trainer that finds another's line after its own must stop.
    """

    def __init__(self, checkpoint: Path, run: str) -> None:
        self._checkpoint, self.path = checkpoint, checkpoint.with_name(f"{checkpoint.name}.steps")
        self._run = run
        self._me = secrets.token_hex(8)
        self._end, self._line = 0, b""

    @property
    def is_there(self) -> bool:
        """Whether the file exists and belongs to this run. Another run's checkpoint may have replaced it."""
        try:
            with self.path.open() as file:
                return file.readline().strip() == self._run
        except FileNotFoundError:
            return False

    def begin(self, steps: int) -> None:
        """Start the journal of a new checkpoint. Steps of the same run that it has counted are kept."""
        known = self.read() if self.is_there else 0
        self._line = self._of(max(steps, known))
        whole = f"{self._run}\n".encode() + self._line
        half = self.path.with_name(f".{self._me}.part")  # a crash must not leave an empty journal
        try:
            with half.open("wb") as file:
                file.write(whole)
                file.flush()
                os.fsync(file.fileno())
            half.replace(self.path)
        finally:
            half.unlink(missing_ok=True)
        self._end = len(whole)

    def take_over(self, steps: int) -> None:
        """Record that this trainer, and no other, continues the run."""
        if self.is_there:
            self._end, self._line = self._append(self._of(steps))

    def note(self, steps: int) -> None:
        """Note a step. Does nothing if the checkpoint was deleted too, or now belongs to another run."""
        self.check_mine()
        if not self.is_there:
            return
        before, line = self._end, self._of(steps)
        self._end, self._line = self._append(line)
        if self._end != before + len(line):
            raise self._taken()

    def check_mine(self) -> None:
        """Raise if another trainer continues this run, or if the journal of an existing checkpoint is missing."""
        if self._checkpoint.exists() and not (self.path.exists() and self.path.stat().st_size):
            what = "emptied" if self.path.exists() else "removed"
            rule = f"{self.path.name} was {what}, so its checkpoint would not count the next steps"
            raise InvalidOperation(f"{rule}; put it back, or remove the checkpoint as well")
        if not self.is_there:
            return
        with self.path.open("rb") as file:
            file.seek(max(0, self._end - len(self._line)))
            if file.read() != self._line:
                raise self._taken()

    def read(self) -> int:
        """The number of steps begun. Raises if the journal is missing."""
        if not self.is_there:
            remedy = "put it back beside the checkpoint: without it, later steps would not be counted"
            raise InvalidParameter("path", self.path.name, "the journal of this checkpoint is missing or empty", remedy)
        return max((int(each.split()[0]) for each in self.path.read_text().splitlines()[1:]), default=0)

    def _of(self, steps: int) -> bytes:
        return f"{steps} {self._me}\n".encode()

    def _append(self, line: bytes) -> tuple[int, bytes]:
        with self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            return file.tell(), line

    def _taken(self) -> InvalidOperation:
        rule = f"another trainer writes into {self.path.name}, so steps of both would be counted once"
        return InvalidOperation(f"{rule}; load the checkpoint again to continue from it, or begin a new run elsewhere")
