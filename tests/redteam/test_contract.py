"""Requests made from the description of the API, as everybody: no fault of ours, and no answer that is not described."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deniable.server.roles import Role
from tests.redteam.cases import ROOT, case
from tests.redteam.test_failures import listening
from tests.server.world import PEOPLE, made

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,"
    "unsupported_method,ignored_auth"
)
EXAMPLES = 5


def program() -> str | None:
    """Schemathesis lives in an environment of its own (make redteam builds it)."""
    return shutil.which(
        "schemathesis", path=f"{ROOT / '.venv-schemathesis' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    )


@case(
    "A15",
    "hundreds of requests made by Schemathesis from the OpenAPI document, as owner, analyst, auditor and admin",
    "no server error, no undescribed answer, no open door; the ledger verifies",
)
@pytest.mark.slow
@pytest.mark.skipif(program() is None, reason="needs schemathesis: make redteam, or put it on the path")
@pytest.mark.parametrize("role", list(Role))
def test_requests_made_from_the_description(role: Role, tmp_path: Path) -> None:
    there = made(tmp_path, port=0)
    found = program()
    assert found is not None
    with there.client, listening(there) as (host, port):
        command = [found, "run", f"http://{host}:{port}/openapi.json", "--checks", CHECKS, "-n", str(EXAMPLES), "--phases", "examples,coverage,fuzzing",
                   "--seed", "7", "-H", f"Authorization: Bearer {there.tokens[PEOPLE[role]]}", "--suppress-health-check", "all", "--warnings", "off",
                   "--generation-database", "none", "--no-color", "--continue-on-failure"]  # fmt: skip
        quiet = {**os.environ, "NO_PROXY": "*", "HTTP_PROXY": "", "http_proxy": "", "SCHEMATHESIS_HOOKS": ""}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=quiet)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        [made_requests] = re.findall(r"(\d[\d,]*) (?:generated|test cases?)", done.stdout)[:1] or [done.stdout[-500:]]
        assert int(made_requests.replace(",", "")) > 100
        assert there.ledger.verify(there.curator.key.public)
