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
    budget: Mapping[str, float] | None,
    family: str | None = None,
    people: str | None = None,
    reason: str | None = None,
    grants: Sequence[str] = (),
    timeout: float = 600.0,
) -> dict[str, Any]:
    """Register a dataset with the server at `url`, as an owner: files that lie in its data folders, by table.

    No data travels, only its description. `grants` are analysts who may ask from then on, up to the whole budget. What
    comes back is all that is public about the dataset, with a `warning` where the data was known. Where the server says
    that most ids are known (`same_people`), `people` is "same" (one budget) or "others", with a `reason`.
    """
    wire = wire_to(url, token, timeout)
    try:
        if grants:
            analysts = wire.get("/v1/analysts")["analysts"]
            for each in grants:
                if each not in analysts:
                    known = ", ".join(analysts) or "there is none yet"
                    rule = f"is no analyst of this server ({known}); nothing was added"
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
                error.add_note(f"the dataset {name!r} was added; {done} was granted it, {each} was not")
                raise
        return made | {"grants": given}
    finally:
        wire.close()
