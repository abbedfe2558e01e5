"""The auditor's command, `verify`, which needs a ledger and nothing else; and the owner's, `rotate` and `moved`.

Exit codes: 0 the history is whole · 1 the file cannot be read · 2 asked wrongly, or no ledger · 3 the history was
changed, and the first bad entry is named.
"""

import contextlib
import json
import math
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, LedgerDamaged, UnreadableRecord

if TYPE_CHECKING:
    import typer

    from deniable.ledger import Verified
    from deniable.ledger.keys import PublicKey

_SQLITE: Final = b"SQLite format 3\0"
"""What the file that a ledger is kept in begins with."""


def add(app: "typer.Typer") -> None:
    """The commands of this room."""
    import typer

    from deniable.cli import plain_errors, portable

    @app.command()
    def verify(
        ledger: Annotated[
            Path,
            typer.Argument(help="A ledger that was exported (ledger.jsonl), or its own file.", show_default=False),
        ],
        key: Annotated[
            Path | None,
            typer.Option(
                help="The owner's first public key (PEM). Signatures by keys that it does not vouch for are refused."
            ),
        ] = None,
        against: Annotated[
            Path | None, typer.Option(help="A checkpoint or an earlier export that the history must contain.")
        ] = None,
        export: Annotated[
            Path | None, typer.Option(help="Of a ledger's own file: keep the history, without answers, in this one.")
        ] = None,
        delta: Annotated[float | None, typer.Option(help="Say the loss as ε at this δ; else at the budget's.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Check a ledger offline: every hash, sum, limit and signature; say what was lost."""
        from deniable.ledger import keys, verify_export

        with plain_errors():
            owner = None if key is None else keys.read_public(key)
            try:
                with _exported(ledger, export) as history:
                    try:
                        found = verify_export(history, key=owner, against=against)
                    except LedgerDamaged as damaged:
                        raise _with_the_first_key(damaged, history, owner) from None
                if owner is not None and not found.checkpoints:
                    fault = "has no checkpoint signed with this key: whoever wrote the file may have written all of it"
                    raise LedgerDamaged(None, fault, "ask for an export that ends in a checkpoint")
            except LedgerDamaged as damaged:
                if as_json:
                    print(json.dumps({"whole": False, "entry": damaged.number, "fault": damaged.fault}, indent=2))
                else:
                    typer.echo(f"deniable: {damaged}", err=True)
                raise typer.Exit(3) from None
            record = _record(found, delta)
            if as_json:
                print(json.dumps(portable(record), ensure_ascii=False, indent=2, allow_nan=False))
            else:
                _show(found, record, checked=owner is not None)

    @app.command("verify-label")
    def verify_label(
        label: Annotated[Path, typer.Argument(help="The label of a release, as JSON.", show_default=False)],
        answer: Annotated[
            Path | None, typer.Argument(help="The answer that stands beside it, as JSON.", show_default=False)
        ] = None,
        key: Annotated[
            Path | None,
            typer.Option(
                help="The server's public key (PEM), from somebody you trust: the newest, or with --ledger the first."
            ),
        ] = None,
        ledger: Annotated[
            Path | None, typer.Option(help="The exported ledger, which lists the keys that the first one vouched for.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
    ) -> None:
        """Check a privacy label offline: its signature, and that the numbers are those that were released."""
        from deniable.ledger import keys
        from deniable.ledger import verify_label as checked

        with plain_errors():
            if key is None:
                rule = "must be given: whoever edits a label can sign it with a key of their own"
                raise InvalidParameter("--key", NOTHING, rule, "ask for /v1/key of the server, or an owner for it")
            owner = keys.read_public(key)
            papers = [None if each is None else _object(each) for each in (label, answer)]
            assert papers[0] is not None
            if "signature" not in papers[0]:
                remedy = "give the label first, then the answer"
                raise InvalidParameter("label", label.name, "is not a label: nobody signed it", remedy)
            try:
                found = checked(papers[0], papers[1], owner, ledger=ledger)
            except UnreadableRecord as wrong:
                if as_json:
                    print(json.dumps({"whole": False, "fault": str(wrong)}, indent=2))
                else:
                    typer.echo(f"deniable: {wrong}", err=True)
                raise typer.Exit(3) from None
            if as_json:
                record = {"whole": True, "release": found.release, "version": found.version, "numbers": found.numbers}
                print(json.dumps({**record, "key": found.signer, "replaced": found.replaced}, indent=2))
            else:
                print("\n".join(found.lines()))
            if answer is not None and not found.numbers:
                raise typer.Exit(3)  # what was asked for could not be checked

    @app.command()
    def rotate(
        ledger: Annotated[
            Path | None, typer.Argument(help="A ledger's own file; without it, --config.", show_default=False)
        ] = None,
        key: Annotated[Path | None, typer.Option(help="The owner's private key, which is replaced.")] = None,
        to: Annotated[Path | None, typer.Option(help="The new one; made if there is no such file.")] = None,
        config: Annotated[
            Path | None, typer.Option(help="Of a server that is stopped: replace its key in all of its ledgers.")
        ] = None,
        by: Annotated[str, typer.Option(help="Who does it, for everybody to read.")] = "owner",
        reason: Annotated[str, typer.Option(help="Why, for everybody to read.")] = "a new key",
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a sentence.")] = False,
    ) -> None:
        """Replace the owner's signing key: the old one signs for the new one, in the ledger."""
        with plain_errors():
            public, many = _rotated(ledger, key, to, config, by, reason)
            if as_json:
                print(json.dumps({"key": public, "ledgers": many}))
            else:
                print(
                    f"The key is now {public}, in {many} ledger{'' if many == 1 else 's'}. The old one signed for it."
                )

    @app.command()
    def moved(
        ledger: Annotated[
            str | None,
            typer.Argument(help="A ledger's own file, or the URL of its database; else --config.", show_default=False),
        ] = None,
        reason: Annotated[
            str, typer.Option(help="Why it is here now, for everybody to read.", show_default=False)
        ] = "",
        dataset: Annotated[str | None, typer.Option(help="Of a database with several ledgers: which one.")] = None,
        config: Annotated[
            Path | None, typer.Option(help="Of a server that is stopped: its catalogue and all of its ledgers.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a sentence.")] = False,
    ) -> None:
        """Say that a ledger's file is in another place for good, and that nobody uses another copy of it."""
        from deniable.ledger import Ledger, State

        with plain_errors():
            if (ledger is None) == (config is None) or not reason:
                which = "visits.csv.ledger" if config is None else "--config server.toml"
                remedy = f"write deniable moved {which} --reason 'a new disk'"
                rule = "give a reason, and either a ledger or --config"
                raise InvalidParameter("ledger, --config, --reason", NOTHING, rule, remedy)
            if config is not None:
                _say_moved(config, reason, as_json=as_json)
                return
            assert ledger is not None
            with Ledger.inspect(ledger, dataset=dataset) as before:
                known = before.verify()
            with Ledger.open(ledger, dataset=dataset, moved=reason) as opened:
                entries = [each for each in opened.entries() if known is None or each.number > known.number]
            found = next((each.number for each in entries if each.state is State.MOVED), None)
            if as_json:
                print(json.dumps({"moved": found is not None, "entry": found}))
            elif found is None:
                print("This ledger is at home here; nothing was written.")
            else:
                print(f"This ledger is at home here now; entry {found} says so. Do not use another copy of it.")


def _say_moved(config: Path, reason: str, *, as_json: bool) -> None:
    """The same of all that a server keeps in its folder."""
    from deniable.server.operations.server_identity import moved
    from deniable.server.operations.settings import Settings

    many = moved(Settings.read(config), reason)
    if as_json:
        print(json.dumps({"moved": many > 0, "ledgers": many}))
    else:
        ledgers = "1 ledger that was" if many == 1 else f"{many} ledgers that were"
        print(f"This server is at home here now, with {ledgers} elsewhere. Do not use another copy of it.")


def _rotated(
    place: Path | None, key: Path | None, to: Path | None, config: Path | None, by: str, reason: str
) -> tuple[str, int]:
    """The new public key, and how many ledgers have it."""
    from deniable.ledger import Ledger, keys

    if config is not None:
        if any(each is not None for each in (place, key, to)):
            raise InvalidParameter(
                "--config", str(config), "names the ledgers and keys of a server", "leave the rest out"
            )
        from deniable.server.operations.key_rotation import rotate
        from deniable.server.operations.settings import Settings

        public, many = rotate(Settings.read(config), by=by, reason=reason)
        return public.hex, many
    if place is None or key is None or to is None:
        remedy = "write deniable rotate owned.ledger --key owner.key --to new.key"
        raise InvalidParameter("ledger, --key, --to", NOTHING, "all three are needed, or --config", remedy)
    if not place.exists():
        raise InvalidParameter("ledger", str(place), "there is no such file")
    old = keys.read(key)
    with Ledger.open(place) as ledger:
        made = not to.exists()
        new = keys.new(to) if made else keys.read(to)
        try:
            ledger.rotate(new.public, by=by, reason=reason, key=old)
        except (InvalidOperation, InvalidParameter):  # nothing was written, so the new key is nobody's
            for each in (to, to.with_suffix(".pub")) if made else ():
                each.unlink()
            raise
        ledger.checkpoint(new)
    return new.public.hex, 1


def _with_the_first_key(damaged: LedgerDamaged, history: Path, owner: "PublicKey | None") -> LedgerDamaged:
    """The same fault; where the key that was given came later in this history, with the remedy that fits."""
    from deniable.ledger import verify_export

    try:
        known = verify_export(history).keys
    except LedgerDamaged:
        known = ()
    if owner is None or owner.hex not in known[1:]:
        return damaged
    remedy = f"the key that was given came later in this history: check it with the first one, {known[0]}"
    return LedgerDamaged(damaged.number, damaged.fault, remedy)


@contextlib.contextmanager
def _exported(place: Path, kept: Path | None) -> Iterator[Path]:
    """The history to check: the file itself, or what is exported of a ledger's own file, which is only read."""
    from deniable.ledger import Ledger

    with place.open("rb") as file:
        own = file.read(len(_SQLITE)) == _SQLITE
    if not own:
        if place.suffix.lower() != ".jsonl" and (beside := place.with_name(place.name + ".ledger")).exists():
            raise InvalidParameter("ledger", str(place), "is the table, not its ledger", f"write {beside}")
        if kept is not None:
            raise InvalidParameter("--export", str(kept), f"{place.name} was exported already", "leave it out")
        yield place
        return
    if kept is not None and kept.exists():
        raise InvalidParameter("--export", str(kept), "is there already", "name a new file")
    with tempfile.TemporaryDirectory() as folder, Ledger.inspect(place) as ledger:
        ledger.verify()
        made = Path(folder) / "ledger.jsonl" if kept is None else kept
        ledger.export(made)
        yield made


def _record(found: "Verified", delta: float | None) -> dict[str, Any]:
    """What was recomputed, as plain values."""
    from deniable.ledger import Cost

    budget = found.heading.budget
    at = delta if delta is not None else float(budget.delta) or (1e-6 if budget.epsilon is None else 0.0)
    return {
        "whole": True,
        "datasets": list(found.names),
        "family": found.heading.family,
        "unit": repr(found.heading.unit),
        "budget": repr(budget),
        "entries": found.entries,
        "unanswered": found.open,
        "hash": found.hash,
        "spent": found.spent.describe(budget),
        "limit": found.limit.describe(budget),
        "loss": {
            "epsilon": budget.curve(found.spent).epsilon(delta=at),
            "delta": at,
            "mu": budget.curve(Cost(found.spent.units)).gdp(),
        },
        "accounts": [
            {
                "name": each.name,
                "window": each.window,
                "limit": each.limit.describe(budget),
                "spent": each.spent.describe(budget),
                "left": each.left.describe_rest(budget),
                "lifetime": each.lifetime.describe(budget),
            }
            for each in found.accounts
        ],
        "adjustments": found.adjustments,
        "checkpoints": [{"number": each.number, "time": each.time} for each in found.checkpoints],
        "signers": list(found.signers),
        "keys": list(found.keys),
        "unsigned": found.unsigned,
    }


def _several(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _up(value: float) -> str:
    """A loss in four digits, rounded up."""
    from deniable.ledger.epsilon_mu_conversion import short_up

    return str(short_up(Fraction(value))) if math.isfinite(value) else "without bound"


def _show(found: "Verified", record: dict[str, Any], *, checked: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    loss = record["loss"]
    facts = Table.grid(padding=(0, 3, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    were = "was" if found.open == 1 else "were"
    signed = f"{_several(found.adjustments, 'adjustment')}, {_several(len(found.checkpoints), 'checkpoint')}"
    vouched = f" and the {len(found.keys) - 1} that came after it, each vouched for" if len(found.keys) > 1 else ""
    trust = f"all by this key{vouched}" if checked else "by whom is not known: give --key"
    if found.checkpoints and found.unsigned:
        trust += f"; {found.unsigned:,} entries after the last checkpoint are signed by nobody"
    for name, value in (
        ("data", ", ".join(found.names)),
        ("protects", record["unit"]),
        ("budget", record["budget"]),
        ("entries", f"{found.entries:,}, of which {found.open:,} {were} charged and not answered"),
        ("spent", f"{record['spent']}, of {record['limit']}"),
        ("loss", f"ε {_up(loss['epsilon'])} at δ {loss['delta']:g}; μ {_up(loss['mu'])}"),
        ("signed", signed + (f", {trust}" if found.signers else "")),
        ("newest hash", found.hash),
    ):
        facts.add_row(name, escape(value))
    accounts = Table("account", "spent", "left", "ever spent", box=None, pad_edge=False)
    for each, said in zip(found.accounts, record["accounts"], strict=True):
        accounts.add_row(escape(each.title), said["spent"], said["left"], said["lifetime"])
    console = Console(highlight=False)
    console.print("[bold green]The history is whole.[/] Every hash, sum, limit and signature was recomputed.\n")
    console.print(facts)
    if len(found.accounts) > 1:
        console.print("\n", accounts, sep="")


def _object(path: Path) -> dict[str, Any]:
    """What a file of JSON says: each name once, since of two some readers take the first and some the last."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in pairs:
            if name in made:
                raise InvalidParameter("file", path.name, f"{name!r} is given twice in it", "download it again")
            made[name] = value
        return made

    try:
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once)
    except InvalidParameter:
        raise
    except (UnicodeDecodeError, ValueError, RecursionError):  # brackets in brackets, thousands deep
        found = None
    if not isinstance(found, dict):
        raise InvalidParameter("file", path.name, "must be an object in JSON", "download it again")
    return found
