"""Script in names, in a real browser: what no page may run, chromium does not run."""

from __future__ import annotations

import httpx
import pytest

from tests.redteam.cases import case
from tests.server.console.test_console_browser import HOSTILE, Place, place  # noqa: F401  # a fixture

pytestmark = pytest.mark.browser
SCRIPT = "<script>document.title='broken'</script>"


@case(
    "A5e",
    "markup with script as alias, literal and reason, on the pages of three people in chromium",
    "nothing runs; the browser reports no violation",
)
@pytest.mark.parametrize(
    "attack", [HOSTILE, SCRIPT, "\"><svg onload=document.title='broken'>"], ids=["img", "script", "svg"]
)
def test_chromium_runs_nothing(attack: str, place: Place) -> None:  # noqa: F811
    quoted, word = attack.replace('"', '""'), attack.replace("'", "''")
    sql = f"SELECT COUNT(*) AS \"{quoted}\" FROM visits WHERE town = '{word}'"
    with httpx.Client(base_url=place.url, trust_env=False, timeout=60) as web:
        for who, path, body in (
            ("ana", "/v1/questions", {"dataset": "visits", "sql": sql, "epsilon": 0.01}),
            ("olga", "/v1/datasets/visits/adjustments", {"budget": {"epsilon": 100.0}, "reason": attack}),
        ):
            headers = {"Authorization": f"Bearer {place.world.tokens[who]}"}
            assert web.post(path, json=body, headers=headers).status_code in {200, 201}
    page = place.page("ana")
    page.goto(f"{place.url}/console/data/visits")
    page.locator("textarea[name=sql]").fill(sql)
    page.locator("textarea[name=sql]").press("Control+Enter")
    page.goto(f"{place.url}/console/data/visits/releases")
    assert "broken" not in page.title()
    pages = [page]
    for who, path in (("ada", "ledger"), ("ada", "releases"), ("olga", "share"), ("olga", "ledger")):
        pages.append(place.page(who))
        pages[-1].goto(f"{place.url}/console/data/visits/{path}")
        pages[-1].wait_for_timeout(50)
    for each in pages:
        assert "broken" not in each.title()
        assert each.complaints == []
        each.context.close()


@case("A5f", "the same markup on a page that does not escape it", "chromium runs it, so the test would detect it")
def test_chromium_would_run_it(place: Place) -> None:  # noqa: F811
    page = place.browser.new_context().new_page()
    page.set_content(f"<title>whole</title>{SCRIPT}")
    assert page.title() == "broken"
    page.context.close()
