"""The HTML report in a real browser: Debian's Chromium, offline, at the width of a phone and of a desk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE, DESK = 390, 1400
A4 = 718
"""Pixels between the margins of a page of A4."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None and os.environ.get("CI") != "true",
        reason="no chromium on PATH (apt-get install chromium)",
    ),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "CI needs chromium: apt-get install chromium"
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, pages: Mapping[str, str]) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    for name in ("view", "refused", "hostile"):
        (folder / f"{name}.html").write_text(pages[name], encoding="utf-8")
    return folder


def opened(browser: Browser, file: Path, width: int, scheme: str) -> tuple[Page, list[str]]:
    """The page, and a list that fills with everything that went wrong."""
    context = browser.new_context(
        reduced_motion="reduce",
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
        offline=True,
    )
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
    page.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: None if request.url == file.as_uri() else troubles.append(request.url))
    page.goto(file.as_uri())
    return page, troubles


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("study", ["view", "refused", "hostile"])
def test_fits_and_asks_for_nothing(
    browser: Browser, files: Path, study: str, width: int, scheme: str
) -> None:
    page, troubles = opened(browser, files / f"{study}.html", width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    overflowing = page.evaluate(
        """() => [...document.querySelectorAll('.card > *, .card figcaption, .setting, dd, li, header *')]
                 .filter(e => !e.closest('svg') && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
                 .map(e => e.className + ': ' + e.textContent.slice(0, 60))"""
    )
    assert overflowing == []
    assert troubles == []
    page.context.close()


def test_wide_tables_scroll_in_their_own_box(browser: Browser, files: Path) -> None:
    page, _ = opened(browser, files / "view.html", PHONE, "light")
    widths = page.evaluate(
        "[...document.querySelectorAll('#frontier .scroll')].map(e => [e.scrollWidth, e.clientWidth])"
    )
    assert any(content > box for content, box in widths)
    page.context.close()


@pytest.mark.parametrize("study", ["view", "hostile"])
def test_prints_on_a4_with_every_run(browser: Browser, files: Path, study: str) -> None:
    page, _ = opened(browser, files / f"{study}.html", A4, "dark")
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = false)")
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= A4
    lines = page.evaluate(
        "[...document.querySelectorAll('.runs li')].map(e => e.getBoundingClientRect().height)"
    )
    assert len(lines) > 20
    assert min(lines) > 20, "groups that are closed on the screen are open on paper"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.context.close()


def test_everything_is_reached_by_keyboard(browser: Browser, files: Path) -> None:
    page, _ = opened(browser, files / "view.html", DESK, "light")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.focus("#runs summary")
    before = page.evaluate("document.querySelector('#runs details').open")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('#runs details').open") is not before
    unreached = page.evaluate("[...document.querySelectorAll('.scroll')].filter(e => e.tabIndex < 0).length")
    assert unreached == 0
    page.context.close()


def test_every_figure_has_a_text_alternative(browser: Browser, files: Path) -> None:
    page, _ = opened(browser, files / "view.html", DESK, "light")
    images = page.get_by_role("img").all()
    assert len(images) == page.evaluate("document.querySelectorAll('svg').length")
    named = page.evaluate(
        """() => [...document.querySelectorAll('svg')].filter(e => !(e.getAttribute('aria-label')
             || (e.getAttribute('aria-labelledby') || '').split(' ').some(id => document.getElementById(id))))
             .length"""
    )
    assert named == 0
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(browser: Browser, files: Path, scheme: str) -> None:
    page, _ = opened(browser, files / "view.html", DESK, scheme)
    poor = page.evaluate(CONTRAST)
    assert poor == []
    page.context.close()


CONTRAST = """() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const lum = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => {
    if (!e) return [255, 255, 255];
    const [r, g, b, a = 1] = parse(getComputedStyle(e).backgroundColor);
    if (a === 1) return [r, g, b];
    return behind(e.parentElement).map((v, i) => a * [r, g, b][i] + (1 - a) * v);
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const texts = [...document.querySelectorAll('h1,h2,p,dt,dd span,td,th,figcaption,a,code,.status,.o,.k,summary')];
  return texts.filter(e => ratio(lum(parse(getComputedStyle(e).color)), lum(behind(e))) < 4.5)
    .map(e => e.tagName + ' ' + e.className + ': ' + e.textContent.slice(0, 40));
}"""
