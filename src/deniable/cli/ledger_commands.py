"""The auditor's commands, `verify` and `verify-label`, which work offline; and the owner's, `rotate` and `moved`.

Exit codes of `verify`: 0 the history is complete and unchanged · 1 the file cannot be read · 2 wrong usage, or the file
is not a ledger · 3 the history was changed; the message names the first bad entry.
"""

import contextlib
import json
import math
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from deniable.cli import plain_errors, print_json
from deniable.errors import NOTHING, InvalidOperation, InvalidParameter, LedgerDamaged, UnreadableRecord

if TYPE_CHECKING:
    import typer

    from deniable.ledger import Verified
    from deniable.ledger.keys import PublicKey

_SQLITE: Final = b"SQLite format 3\0"
"""The first bytes of a ledger's own file, which is an SQLite database."""


def add(app: "typer.Typer") -> None:
    """Add the four commands."""
    import typer

    @app.command()
    def verify(
        ledger: Annotated[
            Path,
            typer.Argument(help="An exported ledger (ledger.jsonl), or the ledger's own file.", show_default=False),
        ],
        key: Annotated[
            Path | None,
            typer.Option(
                help="The owner's first public key (PEM). Signatures by keys that it does not vouch for are refused."
            ),
        ] = None,
        against: Annotated[
            Path | None, typer.Option(help="An earlier checkpoint or export; the history must contain it.")
        ] = None,
        export: Annotated[
            Path | None,
            typer.Option(help="Also write the history of a ledger's own file, without answers, to this new file."),
        ] = None,
        delta: Annotated[
            float | None, typer.Option(help="Print the privacy loss as ε at this δ. Default: the δ of the budget.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    ) -> None:
        """Check a ledger offline: every hash, sum, limit and signature. Print the total privacy loss."""
        with plain_errors():
            try:
                found = _verified(ledger, key, against, export)
            except LedgerDamaged as damaged:
                if as_json:
                    print(json.dumps({"whole": False, "entry": damaged.number, "fault": damaged.fault}, indent=2))
                else:
                    typer.echo(f"deniable: {damaged}", err=True)
                raise typer.Exit(3) from None
            record = _record(found, delta)
            if as_json:
                print_json(record)
            else:
                _show(found, record, checked=key is not None)

    @app.command("verify-label")
    def verify_label(
        label: Annotated[Path, typer.Argument(help="The label of a release, as JSON.", show_default=False)],
        answer: Annotated[
            Path | None, typer.Argument(help="The answer that the label is about, as JSON.", show_default=False)
        ] = None,
        key: Annotated[
            Path | None,
            typer.Option(
                help="The server's public key (PEM), from a source you trust: the newest, or with --ledger the first."
            ),
        ] = None,
        ledger: Annotated[
            Path | None, typer.Option(help="The exported ledger, which lists the keys that the first key vouches for.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
    ) -> None:
        """Check a privacy label offline: its signature, and that the answer holds the numbers that were released."""
        from deniable.ledger import verify_label as checked

        with plain_errors():
            owner, paper, numbers = _label_papers(label, answer, key)
            try:
                found = checked(paper, numbers, owner, ledger=ledger)
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
                raise typer.Exit(3)  # the answer was given, and could not be checked

    @app.command()
    def rotate(
        ledger: Annotated[
            Path | None, typer.Argument(help="A ledger's own file; or give --config.", show_default=False)
        ] = None,
        key: Annotated[Path | None, typer.Option(help="The owner's private key that is replaced.")] = None,
        to: Annotated[
            Path | None, typer.Option(help="The new private key; created if the file does not exist.")
        ] = None,
        config: Annotated[
            Path | None, typer.Option(help="Settings of a stopped server: replace its key in all of its ledgers.")
        ] = None,
        by: Annotated[str, typer.Option(help="Who replaces the key; written into the ledger.")] = "owner",
        reason: Annotated[str, typer.Option(help="The reason; it is written into the ledger.")] = "a new key",
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a sentence.")] = False,
    ) -> None:
        """Replace the owner's signing key: an entry in the ledger names the new key, signed with the old one."""
        with plain_errors():
            public, many = _rotated(ledger, key, to, config, by, reason)
            if as_json:
                print(json.dumps({"key": public, "ledgers": many}))
            else:
                print(f"The key is now {public}, in {_several(many, 'ledger')}. The old one signed for it.")

    @app.command()
    def moved(
        ledger: Annotated[
            str | None,
            typer.Argument(
                help="A ledger's own file, or the URL of its database; or give --config.", show_default=False
            ),
        ] = None,
        reason: Annotated[
            str, typer.Option(help="Why it was moved; written into the ledger.", show_default=False)
        ] = "",
        dataset: Annotated[str | None, typer.Option(help="Which ledger, if the database has several.")] = None,
        config: Annotated[
            Path | None, typer.Option(help="Settings of a stopped server: its catalogue and all of its ledgers.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a sentence.")] = False,
    ) -> None:
        """Declare that a ledger has a new place for good, and that nobody uses another copy of it."""
        with plain_errors():
            if (ledger is None) == (config is None) or not reason:
                which = "visits.csv.ledger" if config is None else "--config server.toml"
                remedy = f"write deniable moved {which} --reason 'a new disk'"
                rule = "give a reason, and either a ledger or --config"
                raise InvalidParameter("ledger, --config, --reason", NOTHING, rule, remedy)
            if ledger is None:
                assert config is not None
                record, words = _moved_server(config, reason)
            else:
                record, words = _moved_ledger(ledger, dataset, reason)
            print(json.dumps(record) if as_json else words)


def _verified(ledger: Path, key: Path | None, against: Path | None, export: Path | None) -> "Verified":
    """The history of a ledger, checked. With a key, at least one checkpoint must be signed. Raises LedgerDamaged."""
    from deniable.ledger import keys, verify_export

    owner = None if key is None else keys.read_public(key)
    with _exported(ledger, export) as history:
        try:
            found = verify_export(history, key=owner, against=against)
        except LedgerDamaged as damaged:
            raise _with_the_first_key(damaged, history, owner) from None
    if owner is not None and not found.checkpoints:
        fault = "has no checkpoint signed with this key: whoever wrote the file may have written all of it"
        raise LedgerDamaged(None, fault, "ask for an export that ends in a checkpoint")
    return found


def _label_papers(
    label: Path, answer: Path | None, key: Path | None
) -> "tuple[PublicKey, dict[str, Any], dict[str, Any] | None]":
    """The public key, the label and the answer, read from their files."""
    from deniable.ledger import keys

    if key is None:
        rule = "must be given: whoever edits a label can sign it with a key of their own"
        raise InvalidParameter("--key", NOTHING, rule, "ask for /v1/key of the server, or an owner for it")
    owner = keys.read_public(key)
    paper, numbers = _object(label), None if answer is None else _object(answer)
    if "signature" not in paper:
        remedy = "give the label first, then the answer"
        raise InvalidParameter("label", label.name, "is not a label, because it has no signature", remedy)
    return owner, paper, numbers


def _moved_ledger(place: str, dataset: str | None, reason: str) -> tuple[dict[str, Any], str]:
    """Note the new place of a ledger in the ledger. Returns the result as a record and in words."""
    from deniable.ledger import Ledger, State

    with Ledger.inspect(place, dataset=dataset) as before:
        known = before.verify()
    with Ledger.open(place, dataset=dataset, moved=reason) as opened:
        entries = [each for each in opened.entries() if known is None or each.number > known.number]
    found = next((each.number for each in entries if each.state is State.MOVED), None)
    words = (
        "This is already the place of the ledger; nothing was written."
        if found is None
        else f"This is now the place of the ledger; entry {found} says so. Do not use another copy of it."
    )
    return {"moved": found is not None, "entry": found}, words


def _moved_server(config: Path, reason: str) -> tuple[dict[str, Any], str]:
    """Note the new place of a server's catalogue and of all its ledgers. Returns a record and words."""
    from deniable.server.operations.server_identity import moved
    from deniable.server.operations.settings import Settings

    many = moved(Settings.read(config), reason)
    ledgers = "1 ledger that was" if many == 1 else f"{many} ledgers that were"
    words = f"This is now the place of the server, with {ledgers} elsewhere. Do not use another copy of it."
    return {"moved": many > 0, "ledgers": many}, words


def _rotated(
    place: Path | None, key: Path | None, to: Path | None, config: Path | None, by: str, reason: str
) -> tuple[str, int]:
    """Replace a key. Returns the new public key, and the number of ledgers in which it was replaced."""
    from deniable.ledger import Ledger, keys

    if config is not None:
        if any(each is not None for each in (place, key, to)):
            raise InvalidParameter(
                "--config",
                str(config),
                "names the ledgers and keys of a server",
                "leave out the ledger, --key and --to",
            )
        from deniable.server.operations.key_rotation import rotate
        from deniable.server.operations.settings import Settings

        public, many = rotate(Settings.read(config), by=by, reason=reason)
        return public.hex, many
    if place is None or key is None or to is None:
        remedy = "write deniable rotate owned.ledger --key owner.key --to new.key"
        raise InvalidParameter("ledger, --key, --to", NOTHING, "must all be given, unless --config is", remedy)
    if not place.exists():
        raise InvalidParameter("ledger", str(place), "there is no such file")
    old = keys.read(key)
    with Ledger.open(place) as ledger:
        made = not to.exists()
        new = keys.new(to) if made else keys.read(to)
        try:
            ledger.rotate(new.public, by=by, reason=reason, key=old)
        except (InvalidOperation, InvalidParameter):  # nothing was written, so nobody needs the new key
            for each in (to, to.with_suffix(".pub")) if made else ():
                each.unlink()
            raise
        ledger.checkpoint(new)
    return new.public.hex, 1


def _with_the_first_key(damaged: LedgerDamaged, history: Path, owner: "PublicKey | None") -> LedgerDamaged:
    """The same error, with another remedy if the given key is not the owner's first key: it names the first key."""
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
    """The history to check: the file itself, or an export of a ledger's own file, which is opened read-only.

    The export goes to `kept`, or to a temporary file.
    """
    from deniable.ledger import Ledger

    with place.open("rb") as file:
        own = file.read(len(_SQLITE)) == _SQLITE
    if not own:
        if place.suffix.lower() != ".jsonl" and (beside := place.with_name(place.name + ".ledger")).exists():
            raise InvalidParameter("ledger", str(place), "is the table, not its ledger", f"write {beside}")
        if kept is not None:
            raise InvalidParameter(
                "--export", str(kept), f"is not needed: {place.name} is an export already", "leave it out"
            )
        yield place
        return
    if kept is not None and kept.exists():
        raise InvalidParameter("--export", str(kept), "exists already", "name a new file")
    with tempfile.TemporaryDirectory() as folder, Ledger.inspect(place) as ledger:
        ledger.verify()
        made = Path(folder) / "ledger.jsonl" if kept is None else kept
        ledger.export(made)
        yield made


def _record(found: "Verified", delta: float | None) -> dict[str, Any]:
    """The recomputed facts as JSON values.

    The loss is ε at `delta`. Default: the δ of the budget, which is 0 for pure ε; 10⁻⁶ for zCDP, which has no δ.
    """
    from deniable.ledger import Cost

    budget = found.heading.budget
    at = delta if delta is not None else float(budget.delta) or (1e-6 if budget.epsilon is None else 0.0)
    return {
        "whole": True,
        "datasets": list(found.names),
        "family": found.heading.family,
        "unit": repr(found.heading.unit),
        "budget": repr(budget),
        "renewal": None if found.heading.renewal is None else repr(found.heading.renewal),
        "risk": found.risk,
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
    """A privacy loss with four digits, rounded up."""
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
        *([] if found.risk is None else [("renews", found.risk)]),
        ("entries", f"{found.entries:,}, of which {found.open:,} {were} charged and not answered"),
        ("spent", f"{record['spent']}, of {record['limit']}"),
        ("loss", f"ε {_up(loss['epsilon'])} at δ {loss['delta']:g}; μ {_up(loss['mu'])}"),
        ("signed", signed + (f", {trust}" if found.signers else "")),
        ("newest hash", found.hash),
    ):
        facts.add_row(name, escape(value))
    accounts = Table("account", "spent", "left", "ever spent", box=None, pad_edge=False)
    for each, amounts in zip(found.accounts, record["accounts"], strict=True):
        accounts.add_row(escape(each.title), amounts["spent"], amounts["left"], amounts["lifetime"])
    console = Console(highlight=False)
    console.print("[bold green]The history is whole.[/] Every hash, sum, limit and signature was recomputed.\n")
    console.print(facts)
    if len(found.accounts) > 1:
        console.print("\n", accounts, sep="")


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. A name that is given twice is refused: readers disagree on which of the two counts."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in pairs:
            if name in made:
                raise InvalidParameter("file", path.name, f"contains {name!r} twice", "download it again")
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
