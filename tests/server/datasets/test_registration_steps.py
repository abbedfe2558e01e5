"""What a registration tells: exact numbers and lines to the owner, nothing of it to anybody else."""

from __future__ import annotations

from tests.queries.hospital import visits
from tests.server.datasets.test_open_datasets import register
from tests.server.world import BUDGET, World


def test_what_became_of_the_rows_is_for_the_owner_alone(world: World) -> None:
    told = world.call("olga", "GET", "/v1/datasets/visits").json()["registration"]["visits"]
    assert told["read"] == told["kept"] + told["cut"] + sum(told["left_out"].values())
    assert told["read"] == len(visits())
    for who in ("ana", "ada"):
        seen = world.call(who, "GET", "/v1/datasets/visits")
        assert seen.status_code == 200
        assert "registration" not in seen.json()
        assert str(told["read"]) not in seen.text
    assert "registration" not in world.ask(epsilon=0.1).text


def test_a_file_that_is_no_table_is_refused_to_its_owner_with_the_line(world: World) -> None:
    visits().to_csv(world.folder / "broken.csv", index=False)
    with (world.folder / "broken.csv").open("a") as file:
        file.write('7,"A\n' + "x" * 200_000 + "\n")  # longer than Python's reader takes
    refused = register(world, "broken", "broken.csv", budget=BUDGET)
    assert refused.status_code == 422
    assert f"line {len(visits()) + 2:,}" in refused.text
    assert "xxx" not in refused.text
    assert world.call("ana", "GET", "/v1/datasets/broken").status_code == 404
