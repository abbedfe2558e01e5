"""Takes the pictures of docs/console.md: `deniable serve --demo` in Debian's chromium, light, dark and on a phone.

Needs the extras server, demo and client, and playwright with a chromium that is on the path.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "pictures"
DIABETES = "SELECT sex, diabetes, COUNT(*) AS n\nFROM people\nGROUP BY sex, diabetes"
QUESTIONS = (
    ("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex", 0.1),
    ("SELECT AVG(bmi) AS bmi FROM people WHERE age >= 18", 0.2),
    ("SELECT diabetes, AVG(pressure) AS pressure FROM people GROUP BY diabetes", 0.3),
)
BOUNDS = {"age": ("integer", "0", "80"), "bmi": ("real", "10", "60")}
PICTURES = tuple(
    f"console-{role}-{look}.png"
    for look, roles in (
        ("light", ("owner", "analyst", "auditor")),
        ("dark", ("analyst",)),
        ("phone", ("owner", "analyst", "auditor")),
    )
    for role in roles
)
KEYS = {"sex": "Female, Male", "diabetes": "no, borderline, yes"}


def main() -> None:
    """All pictures."""
    import httpx
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "deniable", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        tokens = {}
        for line in server.stdout:
            if line.startswith("http"):
                url = line.strip()
                break
            role, token = line.split()
            tokens[role] = token
        try:
            for sql, epsilon in QUESTIONS:
                body = {"dataset": "people", "sql": sql, "epsilon": epsilon}
                headers = {"Authorization": f"Bearer {tokens['analyst']}"}
                httpx.post(f"{url}/v1/questions", json=body, headers=headers, trust_env=False).raise_for_status()
            with sync_playwright() as play:
                browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                for look in ("light", "dark", "phone"):
                    _look(browser, url, tokens, look)
                browser.close()
        finally:
            server.terminate()


def _look(browser: Any, url: str, tokens: dict[str, str], look: str) -> None:
    size = {"width": 390, "height": 800} if look == "phone" else {"width": 1240, "height": 860}
    for role, take in (("owner", _owner), ("analyst", _analyst), ("auditor", _auditor)):
        name = f"console-{role}-{look}.png"
        if name not in PICTURES:
            continue
        context = browser.new_context(
            viewport=size, color_scheme="dark" if look == "dark" else "light", reduced_motion="reduce"
        )
        page = context.new_page()
        page.goto(url)
        page.get_by_label("Token").fill(tokens[role])
        page.get_by_role("button", name="Sign in").click()
        take(page, url)
        page.evaluate("document.activeElement.blur()")
        # A phone shows the beginning: the whole of it would be a very long picture.
        clip = {"clip": {"x": 0, "y": 0, "width": 390, "height": 1560}} if look == "phone" else {}
        page.screenshot(path=OUT / name, full_page=True, **clip)
        context.close()


def _owner(page: Any, url: str) -> None:
    page.get_by_role("link", name="Add a dataset").click()
    page.get_by_role("link", name="people.csv").click()
    page.get_by_label("A person is one").select_option("id")
    for column, (kind, low, high) in BOUNDS.items():
        page.get_by_label(f"Kind of {column}").select_option(kind)
        page.get_by_label(f"Lowest {column}").fill(low)
        page.get_by_label(f"Highest {column}").fill(high)
    page.get_by_label("Kind of pressure").select_option("integer")
    page.get_by_label("Buy bounds of pressure").check()
    page.locator("#bounds").get_by_text("of the budget buys bounds of pressure").wait_for()
    for column, keys in KEYS.items():
        page.get_by_label(f"Keys of {column}").fill(keys)


def _analyst(page: Any, url: str) -> None:
    page.get_by_role("link", name="people").click()
    page.get_by_label("Your question, in SQL").fill(DIABETES)
    page.get_by_label("Amount").fill("0.3")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("Receipt").wait_for()
    page.locator("#price").get_by_text("ε 0.3", exact=True).wait_for()


def _auditor(page: Any, url: str) -> None:
    page.get_by_role("link", name="people").click()
    page.get_by_text("The chain holds.").wait_for()


if __name__ == "__main__":
    main()
