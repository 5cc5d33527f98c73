"""Pages in a real browser: the fixture ``browser``, and how a page is opened and looked at."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--window-size=1280,900"),
    *("--disable-extensions", "--disable-default-apps", "--disable-features=Translate,MediaRouter,OptimizationHints"),
)
BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 25, 29)"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Chrome"]:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield chrome
    chrome.quit()


@contextmanager
def opened(browser: "Chrome", file: Path) -> Iterator["Chrome"]:
    """A context with the page, in which no error may come up and nothing be fetched."""
    browser.get_log("browser")
    browser.get(file.as_uri())
    yield browser
    # Without a network, the first tab complains about its own fonts, at any time after Chromium has started.
    found = [entry for entry in browser.get_log("browser") if not entry["message"].startswith("chrome://")]
    assert found == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


@contextmanager
def seen_as(page: "Chrome", *, width: int, scheme: str, measure: str) -> Iterator[Any]:
    """A context with the page in a window of this width, and light or dark; and what the expression measures in it."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    try:
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        background = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert background == BACKGROUNDS[scheme]
        yield page.execute_async_script(  # the page draws anew in its own time
            f"requestAnimationFrame(() => setTimeout(() => arguments[0]((() => {{{measure}}})())))"
        )
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
