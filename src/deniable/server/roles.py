"""Who may do what: one table for the API and the console.

Nobody may edit a ledger, so the table has no verb for it. Auditors see all spending and cannot ask questions. Admins
invite people, never hold their tokens, and see neither data, nor questions, nor answers.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, final


@final
class Role(StrEnum):
    """The role of a person. Each person has one."""

    OWNER = "owner"
    ANALYST = "analyst"
    AUDITOR = "auditor"
    ADMIN = "admin"


OWNER, ANALYST, AUDITOR, ADMIN = Role

MATRIX: Final[dict[str, frozenset[Role]]] = {
    "see datasets": frozenset({OWNER, ANALYST, AUDITOR}),
    "see dummy rows": frozenset({OWNER, ANALYST, AUDITOR}),
    "ask dummy rows": frozenset({OWNER, ANALYST}),
    "price": frozenset({OWNER, ANALYST}),
    "ask": frozenset({OWNER, ANALYST}),
    "see synthetic data": frozenset({OWNER, ANALYST}),
    "publish synthetic data": frozenset({OWNER}),
    "see standing questions": frozenset({OWNER, ANALYST}),
    "declare standing questions": frozenset({OWNER}),
    "register": frozenset({OWNER}),
    "buy bounds": frozenset({OWNER}),
    "grant": frozenset({OWNER}),
    "adjust": frozenset({OWNER}),
    "see analysts": frozenset({OWNER, ADMIN}),
    "see grants": frozenset({OWNER, AUDITOR}),
    "see ledger": frozenset({OWNER, AUDITOR}),
    "see overlaps": frozenset({AUDITOR}),
    "see failures": frozenset({OWNER}),
    "see labels": frozenset({OWNER, ANALYST, AUDITOR}),
    "manage people": frozenset({ADMIN}),
    "see log": frozenset({OWNER, AUDITOR}),
    "see metrics": frozenset({ADMIN, AUDITOR}),
    "see oneself": frozenset(Role),
}
"""Each verb, and the roles that may do it. `Curator.visible` decides on which datasets: owners see their own,
analysts those that were granted to them, auditors all."""


def may(role: Role, verb: str) -> bool:
    """Whether a role may do what a verb of `MATRIX` names.

    >>> may(Role.AUDITOR, "ask"), may(Role.AUDITOR, "see ledger")
    (False, True)
    """
    return role in MATRIX[verb]


def refusal(role: Role, verb: str) -> str:
    """The message that this role may not do what `verb` says, with the roles that may.

    >>> refusal(Role.ANALYST, "see ledger")
    'analyst may not see ledger; owner and auditor may'
    """
    return f"{role} may not {verb}; {' and '.join(each for each in Role if each in MATRIX[verb])} may"
