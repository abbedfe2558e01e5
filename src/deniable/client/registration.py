"""An owner adds a dataset to a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from deniable.errors import DeniableError, InvalidParameter
from deniable.transport import wire_to


def register(
    url: str,
    *,
    token: str,
    name: str,
    sources: Mapping[str, str],
    schema: str | Mapping[str, Any],
    budget: Mapping[str, Any] | None,
    family: str | None = None,
    people: str | None = None,
    reason: str | None = None,
    grants: Sequence[str] = (),
    timeout: float = 600.0,
) -> dict[str, Any]:
    """Register a dataset with the server at `url`, as an owner. `sources` are files in the server's data folders, by
    table; only this description is sent, no data.

    `grants` lists analysts who may ask from now on, each up to the whole budget. Returns all public facts about the
    dataset, with a `warning` if the server knows the data already. If the server refuses because most ids are known
    (`same_people`), call again with `people="same"` (the datasets share one budget) or `"others"`, and a `reason`.
    `timeout` is in seconds, for each request. Raises InvalidParameter, before anything is registered, if one of
    `grants` is not an analyst of the server; ServerRefused if the server refuses. If a grant fails after the
    registration, the error has a note that lists the grants that were made.
    """
    wire = wire_to(url, token, timeout)
    try:
        if grants:
            analysts = wire.get("/v1/analysts")["analysts"]
            for each in grants:
                if each not in analysts:
                    known = ", ".join(analysts) or "nobody yet"
                    rule = f"is not an analyst of this server (its analysts: {known}); nothing was registered"
                    raise InvalidParameter("grants", each, rule, "ask an admin to invite them")
        body = {"name": name, "sources": dict(sources), "schema": schema, "budget": budget, "family": family}
        body |= {"people": people, "reason": reason}
        made: dict[str, Any] = wire.once("/v1/datasets", {key: each for key, each in body.items() if each is not None})
        place = f"/v1/datasets/{quote(name, safe='')}/grants"
        given: list[dict[str, Any]] = []
        for each in grants:
            try:
                given.append(wire.once(place, {"analyst": each}))
            except DeniableError as error:
                done = ", ".join(str(one["analyst"]) for one in given) or "nobody"
                error.add_note(f"the dataset {name!r} was registered; it was granted to {done}, and not to {each}")
                raise
        return made | {"grants": given}
    finally:
        wire.close()
