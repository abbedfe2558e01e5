"""`deniable serve` as people start it."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import deniable as dn
from deniable.server.catalogue.catalogue import Catalogue
from deniable.server.operations import server_processes
from deniable.server.operations.settings import Settings
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
        assert [line for line in said.splitlines() if json.loads(line)["level"] != "INFO"] == []  # who came is told


def test_the_demo_answers_a_question_over_http() -> None:
    with serving("--demo") as (tokens, url, _):
        assert set(tokens) == set(Role)
        with dn.connect(url, token=tokens["analyst"]) as session:
            answer = session.sql("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex", epsilon=0.5)
            # NHANES has 8,366 people. σ of the sum of two counts is about 21 here, so this is 30 of them away.
            assert abs(sum(answer["n"]) - 8366) < 650  # type: ignore[arg-type]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("told", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_demo_that_is_stopped_leaves_nothing_and_says_nothing(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Whoever runs these tests by nohup ignores it, and so would the server.
    before = signal.signal(getattr(signal, told), signal.SIG_DFL)
    with serving("--demo") as (_, url, server):
        signal.signal(getattr(signal, told), before)
        assert [each.name[:14] for each in tmp_path.glob("deniable-demo-*")] == ["deniable-demo-"]
        assert httpx.get(f"{url}/health", trust_env=False).is_success
        server.send_signal(getattr(signal, told))
        server.wait(60)
        assert server.stderr.read() == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
def test_at_a_terminal_it_says_where_to_go_and_how_to_stop() -> None:
    """Four tokens and an address stood there without a word."""
    mine, theirs = os.openpty()
    command = [sys.executable, "-m", "deniable", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as server:
        assert server.stdout is not None
        lines = [server.stdout.readline() for _ in range(5)]
        assert lines[-1].startswith("http")
        assert select.select([mine], [], [], 60)[0]
        said = os.read(mine, 1000).decode()
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    os.close(mine)
    os.close(theirs)
    expected = "Open the address in a browser and sign in with one of the tokens. Ctrl+C stops the server and deletes the demo's data."
    assert said.strip() == expected


def test_a_password_of_the_database_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ps` shows command lines to everybody on the machine."""
    seen: list[list[str]] = []
    begin = subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        seen.append(command)
        os.kill(os.getpid(), signal.SIGTERM)  # stop again at once
        return begin([sys.executable, "-c", "import sys; sys.exit('secret' not in sys.stdin.readline())"], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    place = "postgresql://curator:secret@127.0.0.1/x"
    settings = Settings(state=tmp_path, data=[tmp_path], port=0, processes=2, database=place)
    with server_processes.listening(settings) as listening:
        server_processes.serve_in_processes(settings, listening)
    assert len(seen) == 2
    assert "secret" not in str(seen)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_nobody_serves_on_when_the_first_process_is_killed(tmp_path: Path) -> None:
    """Else the address stays taken, by processes that nobody replaces."""
    (tmp_path / "data").mkdir()
    config = tmp_path / "server.toml"
    config.write_text('state = "state"\ndata = ["data"]\nprocesses = 2\n')
    with serving("--config", str(config)) as (_, url, server):
        assert httpx.get(f"{url}/health", trust_env=False, timeout=60).is_success
        server.kill()
        server.wait(60)
        settings = Settings(state=tmp_path, data=[tmp_path], port=int(url.rpartition(":")[2]))
        for _ in range(600):
            with contextlib.suppress(OSError):
                server_processes.listening(settings).close()
                return
            time.sleep(0.1)
        pytest.fail("the address is still taken")


def all_hear(url: str) -> None:
    """Each comes anew, to either process: all to the same one with probability 2e-12."""
    for _ in range(40):
        assert httpx.get(f"{url}/health", timeout=60, trust_env=False).is_success


def until_listening(url: str, count: int) -> None:
    """Wait until so many sockets listen at the address."""
    port = f":{int(url.rpartition(':')[2]):04X}"
    for _ in range(600):
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        if sum(line[1].endswith(port) and line[3] == "0A" for line in lines) == count:
            return
        time.sleep(0.1)
    pytest.fail(f"there are never {count}")


def test_several_processes_share_one_account_and_survive_a_kill(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    visits().to_csv(tmp_path / "data" / "visits.csv", index=False)
    config = tmp_path / "server.toml"
    config.write_text('state = "state"\ndata = ["data"]\nprocesses = 2\n')
    with serving("--config", str(config), "--invite", "root") as (tokens, url, server):
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as web:

            def post(path: str, token: str, body: dict[str, Any]) -> Any:
                answer = web.post(path, json=body, headers={"Authorization": f"Bearer {token}"})
                assert answer.is_success, answer.text
                return answer.json()

            for name, role in (("olga", "owner"), ("ana", "analyst")):
                invited = post("/v1/invitations", tokens["admin"], {"person": name, "role": role})
                tokens[role] = post("/redeem", tokens["admin"], {"invitation": invited["invitation"]})["token"]
            body = {
                "name": "visits",
                "sources": {"visits": "visits.csv"},
                "schema": SCHEMA,
                "budget": {"epsilon": 10.0, "delta": 1e-6},
            }
            post("/v1/datasets", tokens["owner"], body)
            post("/v1/datasets/visits/grants", tokens["owner"], {"analyst": "ana"})
        all_hear(url)
        with dn.connect(url, token=tokens["analyst"]) as session:
            first = session.sql(WARDS, epsilon=0.5)
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            assert len(children) == 2
            os.kill(int(children[0]), signal.SIGKILL)
            for _ in range(8):  # whichever process answers, it is the same answer from one ledger
                assert session.sql(WARDS, epsilon=0.5).rows == first.rows
            assert session.spent.gdp() == first.curve.gdp()
        until_listening(url, 2)
        os.kill(int(children[1]), signal.SIGKILL)
        until_listening(url, 1)
        all_hear(url)  # nobody waits where nobody is
        until_listening(url, 2)
        all_hear(url)


@pytest.mark.skipif(sys.platform != "linux", reason="connections are spread by Linux")
def test_every_process_hears_and_no_second_server_does(tmp_path: Path) -> None:
    """Of 40 connections to two sockets all go to one by chance with probability 2e-12."""
    settings = Settings(state=tmp_path, data=[tmp_path], port=0, processes=2)
    places = server_processes._places(server_processes.listening(settings), 2)
    here = places[0].getsockname()
    assert [each.getsockname() for each in places] == [here, here]
    assert len({each.fileno() for each in places}) == 2
    with contextlib.ExitStack() as stack:
        for each in places:
            stack.enter_context(each)
        for _ in range(40):
            stack.enter_context(socket.create_connection(here))
        heard = [len(select.select([each], [], [], 0)[0]) for each in places]
        assert heard == [1, 1]
        with pytest.raises(OSError, match="in use"):
            server_processes.listening(replace(settings, port=here[1]))
    server_processes.listening(replace(settings, port=here[1])).close()  # and free again


@pytest.mark.parametrize("count", [1, 2])
def test_of_two_servers_that_start_together_one_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    settings = Settings(state=tmp_path, data=[tmp_path], port=0, processes=count)
    quicker: list[socket.socket] = []

    class Slow(socket.socket):
        def bind(self, where: Any) -> None:
            super().bind(where)
            if where[1] == 0:
                quicker.append(server_processes.listening(replace(settings, port=self.getsockname()[1])))

    monkeypatch.setattr(socket, "socket", Slow)
    with pytest.raises(OSError, match="in use"):
        server_processes.listening(settings)
    quicker[0].close()


def _has_ipv6() -> bool:
    """A machine may know of IPv6 and have no address of that kind."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="there is no IPv6 here")
@pytest.mark.parametrize("count", [1, 2])
def test_who_serves_ipv6_does_not_serve_ipv4(tmp_path: Path, count: int) -> None:
    settings = Settings(state=tmp_path, data=[tmp_path], host="::", port=0, processes=count)
    with contextlib.ExitStack() as stack:
        places = server_processes._places(server_processes.listening(settings), count)
        for each in places:
            stack.enter_context(each)
        port = places[0].getsockname()[1]
        assert [each.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) for each in places] == [1] * count
        stack.enter_context(socket.create_connection(("::1", port)))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_what_is_asked_wrongly_is_said_in_a_line() -> None:
    for options in ([], ["--demo", "--config", "x.toml"]):
        done = subprocess.run(
            [sys.executable, "-m", "deniable", "serve", *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "exactly one of them" in done.stderr
        assert "Traceback" not in done.stderr


def refused(*options: str) -> tuple[int, str]:
    """How `serve` ends when it cannot begin."""
    command = [sys.executable, "-m", "deniable", "serve", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, "Traceback" in done.stderr) == ("", False)
    return done.returncode, done.stderr


def test_what_cannot_be_served_is_said_in_a_line(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text('state = "state"\ndata = ["nofolder"]\n')
    assert "nofolder is not a folder" in refused("--config", str(config))[1]
    (tmp_path / "other").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "other" / "catalogue.sqlite").write_text("no database, and long enough to be read as one" * 50)
    config.write_text('state = "other"\ndata = ["data"]\n')
    assert refused("--config", str(config)) == (
        2,
        "deniable: catalogue.sqlite in the folder `state` is not a catalogue, or it is damaged; "
        "it was not changed: restore it from a copy\n",
    )
    config.write_text('state = "state"\ndata = ["data"]\n')
    code, said = refused("--config", str(config), "--host", "999.1.1.1")
    assert (code, "--port" in said) == (1, False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = refused("--config", str(config), "--port", str(port))
    assert (code, said.count("\n")) == (1, 1)
    assert f"Address already in use: 127.0.0.1:{port};" in said
    catalogue = Catalogue(tmp_path / "state" / "catalogue.sqlite")
    catalogue.add_person("olga", Role.OWNER)
    code, said = refused("--config", str(config), "--port", "0", "--invite", "olga")
    assert code == 2
    assert "--invite='olga': is an owner here; --invite makes admins only; choose another name" in said
    catalogue.close_person("olga")
    said = refused("--config", str(config), "--port", "0", "--invite", "olga")[1]
    assert "--invite='olga': was an owner here; --invite makes admins only" in said
    catalogue.add_person("root", Role.ADMIN)
    said = refused("--config", str(config), "--port", "0", "--invite", "Root")[1]
    assert "'Root' looks like 'root', who exists already; choose another name" in said
    assert "the demo prints the token of its own admin" in refused("--demo", "--invite", "bob")[1]
    assert catalogue.tokens("olga") == []
    catalogue.close()


def test_an_admin_who_is_invited_at_the_start_leaves_lines(tmp_path: Path) -> None:
    """They were in the log of people, and not on stderr; the address is nobody's, so the server ends at once."""
    (tmp_path / "data").mkdir()
    config = tmp_path / "server.toml"
    config.write_text('state = "state"\ndata = ["data"]\n')
    command = [sys.executable, "-m", "deniable", "serve", "--config", str(config), "--invite", "root"]
    done = subprocess.run([*command, "--host", "203.0.113.1"], capture_output=True, text=True, check=False)
    said = [json.loads(line)["said"]["event"] for line in done.stderr.splitlines() if line.startswith("{")]
    assert said == ["person_added", "person_issued"]
    times = [json.loads(line)["time"] for line in done.stderr.splitlines() if line.startswith("{")]
    assert all(dt.datetime.fromisoformat(each).utcoffset() == dt.timedelta(0) for each in times)
