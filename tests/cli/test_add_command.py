"""`deniable add`: a file is registered from the shell, and nothing of it travels but its description."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import deniable as dn
from deniable import cli
from tests.server.world import World

SCHEMA = """\
version: 1
tables:
  shops:
    columns:
      town: {kind: text, keys: [x, y], nullable: false}
      worth: {kind: integer, low: 0, high: 9}
"""


def shops(folder: Path, name: str, start: int) -> Path:
    drawn = random.Random(start)
    path = folder / name
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["owner", "town", "worth"])
        writer.writerows([f"s{start + n}", drawn.choice("xy"), drawn.randrange(10)] for n in range(400))
    return path


def added(served: tuple[World, str], *arguments: str, who: str = "olga") -> Any:
    there, url = served
    environment = {"DENIABLE_TOKEN": there.tokens[who], "DENIABLE_URL": url}
    return CliRunner().invoke(cli.build(), ["add", *arguments], env=environment)


def test_a_file_is_registered_granted_and_asked(served: tuple[World, str]) -> None:
    there, url = served
    path, schema = shops(there.folder, "shops.csv", 0), there.folder / "shops.yaml"
    schema.write_text(SCHEMA)
    options = ["--schema", str(schema), "--unit", "owner", "--rows", "1", "--budget", "50", "--delta", "1e-6"]
    said = added(served, str(path), *options, "--grant", "ana")
    assert said.exit_code == 0, said.output
    assert "shops: protects" in said.stdout
    assert "ana may ask" in said.stdout
    with dn.connect(url, token=there.tokens["ana"], dataset="shops") as session:
        answer = session.sql("SELECT town, COUNT(*) AS n FROM shops GROUP BY town", epsilon=10.0)
        # 200 in each town; σ is below 1 at ε = 10, so this is more than 50 of them away.
        assert all(abs(each - 200) < 50 for each in answer["n"])  # type: ignore[operator]


def test_without_a_schema_names_and_types_are_taken_and_json_says_it_all(served: tuple[World, str]) -> None:
    path = shops(served[0].folder, "kiosks.csv", 10_000)
    said = added(served, str(path), "--name", "stands", "--unit", "owner", "--rows", "1", "--budget", "1", "--json")
    assert said.exit_code == 0, said.output
    record = json.loads(said.stdout)
    assert (record["name"], record["linked"], record["grants"]) == ("stands", False, [])
    assert set(record["tables"]["kiosks"]["columns"]) >= {"town", "worth"}
    again = added(served, str(path), "--name", "stands 2", "--unit", "owner", "--rows", "1", "--json")
    assert json.loads(again.stdout)["linked"] is True
    assert "continues to spend" in json.loads(again.stdout)["warning"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["there.csv", "--unit", "owner", "--rows", "1", "--budget", "1"], 2, "is not on this machine"),
        (["{}", "--budget", "1"], 2, "it says who is protected"),
        (["{}", "--unit", "owner", "--budget", "1"], 2, "--unit: must be given together with --rows"),
        (["{}", "--each-row", "--delta", "1e-6"], 2, "give --budget as well"),
        (["{}", "--each-row", "--name", "visits", "--budget", "1"], 2, "is taken: a dataset has this name"),
        (
            ["{}", "--each-row", "--budget", "1", "--name", "<a>"],
            2,
            "--name='<a>': must begin with a letter or a digit",
        ),
        (
            ["{}", "--each-row", "--budget", "1", "--grant", "nobody"],
            2,
            "--grant='nobody': is not an analyst of this server",
        ),
        (
            ["{}", "--each-row", "--budget", "1", "--people", "same"],
            2,
            "--people='same': is allowed only if the ids or rows are those of exactly one dataset of yours; leave it out, or name the "
            "dataset with --family",
        ),
        (["{}", "--each-row"], 2, "--budget: must be given"),
        (["{}", "--each-row", "--budget", "-1"], 2, "--budget=-1"),
        (["{}", "--each-row", "--budget", "1", "--delta", "2"], 2, "--delta=2"),
        (["{}", "--each-row", "--budget", "1", "--people", "nobody"], 2, "--people='nobody'"),
        (["{}", "--each-row", "--budget", "1", "--token", "dn_x"], 1, "does not take this token"),
        (["{}", "--each-row", "--budget", "1", "--url", "http://example.org"], 2, "must be https"),
        (
            ["{}", "--each-row", "--budget", "1", "--url", "http://127.0.0.1:9"],
            1,
            "could not be reached; is it running",
        ),
    ],
)
def test_what_is_wrong_is_said(served: tuple[World, str], arguments: list[str], code: int, said: str) -> None:
    path = shops(served[0].folder, "stalls.csv", 20_000)
    found = added(served, *(each.format(path) for each in arguments))
    assert (found.exit_code, found.stdout) == (code, "")
    assert said in " ".join(found.stderr.split())


def test_a_file_elsewhere_and_another_role_are_refused(served: tuple[World, str], tmp_path: Path) -> None:
    outside = added(served, str(shops(tmp_path, "secret.csv", 30_000)), "--each-row", "--budget", "1")
    assert (outside.exit_code, "data folders" in outside.stderr) == (2, True)
    inside = shops(served[0].folder, "carts.csv", 40_000)
    analyst = added(served, str(inside), "--each-row", "--budget", "1", who="ana")
    assert (analyst.exit_code, "analyst may not register" in analyst.stderr) == (1, True)


@pytest.mark.slow
def test_a_grant_to_nobody_is_refused_before_anything_is_added(served: tuple[World, str]) -> None:
    path = shops(served[0].folder, "boats.csv", 50_000)
    options = [str(path), "--unit", "owner", "--rows", "1", "--budget", "1", "--grant", "ana"]
    refused = added(served, *options, "--grant", "nobody")
    assert "nothing was registered" in " ".join(refused.stderr.split())
    assert served[0].curator.catalogue.dataset("boats") is None
    assert added(served, *options).exit_code == 0


def test_a_budget_that_renews_is_registered_and_its_risk_is_printed(served: tuple[World, str]) -> None:
    there, url = served
    path = shops(there.folder, "weekly.csv", 50_000)
    options = ["--unit", "owner", "--rows", "1"]
    for wrong, words in ((["--per", "week"], "go together"), (["--per", "hour", "--periods", "2"], "--per")):
        said = added(served, str(path), *options, "--budget", "0.5", *wrong)
        assert said.exit_code != 0
        assert words in said.output
    assert "give --budget as well" in added(served, str(path), *options, "--per", "week", "--periods", "4").output
    said = added(served, str(path), *options, "--budget", "0.5", "--per", "week", "--periods", "4")
    assert said.exit_code == 0, said.output
    assert "after one week, and at most 88.1 % after 4 weeks" in said.stdout
    with dn.connect(url, token=there.tokens["olga"], dataset="weekly") as session:
        assert str(session.remaining).startswith("epsilon 0.5")
        assert "at most 88.1 % after 4 weeks" in " ".join(session.statement().text().split())
        assert session.describe()["renewal"]["per"] == "week"
