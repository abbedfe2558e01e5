"""`deniable serve` as people start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import deniable as dn
from deniable.server.roles import Role
from tests.queries.hospital import visits
from tests.server.world import SCHEMA, WARDS

pytestmark = pytest.mark.slow


@contextmanager
def serving(*options: str) -> Iterator[tuple[dict[str, str], str, Any]]:
    """The server, the tokens it printed, and its address."""
    command = [sys.executable, "-m", "deniable", "serve", "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stderr is not None
    tokens: dict[str, str] = {}
    try:
        for line in server.stdout:
            if line.startswith("http"):
                break
            role, token = line.split()
            tokens[role] = token
        yield tokens, line.strip(), server
    finally:
        server.send_signal(signal.SIGTERM)
        said = server.stderr.read()
        server.wait(60)
        server.stdout.close()
        server.stderr.close()
        assert said == ""


def test_the_demo_answers_a_question_over_http() -> None:
    with serving("--demo") as (tokens, url, _):
        assert set(tokens) == set(Role)
        with dn.connect(url, token=tokens["analyst"]) as session:
            answer = session.sql("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex", epsilon=0.5)
            # NHANES has 8,366 people. σ of the sum of two counts is about 21 here, so this is 30 of them away.
            assert abs(sum(answer["n"]) - 8366) < 650  # type: ignore[arg-type]


def test_several_processes_share_one_account_and_survive_a_kill(tmp_path: Path) -> None:
    visits().to_csv(tmp_path / "visits.csv", index=False)
    config = tmp_path / "server.toml"
    config.write_text('state = "state"\ndata = ["."]\nprocesses = 2\n')
    with serving("--config", str(config), "--invite", "root") as (tokens, url, server):
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as web:

            def post(path: str, token: str, body: dict[str, Any]) -> Any:
                answer = web.post(path, json=body, headers={"Authorization": f"Bearer {token}"})
                assert answer.is_success, answer.text
                return answer.json()

            for name, role in (("olga", "owner"), ("ana", "analyst")):
                post("/v1/people", tokens["admin"], {"name": name, "role": role})
                tokens[role] = post("/v1/tokens", tokens["admin"], {"person": name})["token"]
            body = {
                "name": "visits",
                "sources": {"visits": "visits.csv"},
                "schema": SCHEMA,
                "budget": {"epsilon": 10.0, "delta": 1e-6},
            }
            post("/v1/datasets", tokens["owner"], body)
            post("/v1/datasets/visits/grants", tokens["owner"], {"analyst": "ana"})
        with dn.connect(url, token=tokens["analyst"]) as session:
            first = session.sql(WARDS, epsilon=0.5)
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            assert len(children) == 2
            os.kill(int(children[0]), signal.SIGKILL)
            for _ in range(8):  # whichever process answers, it is the same answer from one ledger
                assert session.sql(WARDS, epsilon=0.5).rows == first.rows
            assert session.spent.gdp() == first.curve.gdp()


def test_what_is_asked_wrongly_is_said_in_a_line() -> None:
    for options in ([], ["--demo", "--config", "x.toml"]):
        done = subprocess.run(
            [sys.executable, "-m", "deniable", "serve", *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "exactly one of them" in done.stderr
        assert "Traceback" not in done.stderr
