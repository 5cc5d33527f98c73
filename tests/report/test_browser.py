"""The page in a real browser, which must be there."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from manyheads.runner.report.write import write
from tests.report.sweep import Sweep

pytestmark = pytest.mark.slow
INSTALL = "apt-get install -y --no-install-recommends chromium chromium-driver"
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--window-size=1280,900"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.fail(f"Chromium and its driver are missing: {INSTALL}")
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=Service(driver))
    yield chrome
    chrome.quit()


@pytest.fixture
def page(sweep: Sweep, browser: Chrome) -> Iterator[Chrome]:
    """Of four jobs, one of which failed; no error may come up while it is used."""
    note = "+model.note=<img src=x onerror=console.error(1)>" + "_and_a_long_rest" * 8
    for number, seconds in enumerate((10.0, 9.0, 101.0)):
        parallel = ("single", "ddp", "horovod")[number]
        sweep.job(f"parallel={parallel}", f"optimizer.lr=0.{number}", note, seconds=seconds)
    sweep.job("parallel=dp", "optimizer.lr=0.5", state="skipped", reason="no GPU" * 60)
    write(sweep.compared(), sweep.folder)
    browser.get_log("browser")
    browser.get(Path(sweep.folder / "comparison.html").as_uri())
    yield browser
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def column(page: Chrome, title: str) -> list[str]:
    """The cells of the rows that can be seen."""
    titles = [cell.text.rstrip(" ▲▼") for cell in page.find_elements(By.CSS_SELECTOR, "#table th")]
    rows = page.find_elements(By.CSS_SELECTOR, "#table tbody tr")
    at = titles.index(title)
    return [row.find_elements(By.TAG_NAME, "td")[at].text for row in rows if row.is_displayed()]


def click(page: Chrome, title: str) -> None:
    page.find_element(By.XPATH, f"//table[@id='table']//button[text()='{title}']").click()


def test_a_column_sorts_by_its_numbers_and_what_was_not_measured_comes_last(page: Chrome):
    assert column(page, "job") == ["0", "1", "2", "3"]
    click(page, "s/epoch")
    assert column(page, "s/epoch") == ["9.00", "10.0", "101", "–"]
    click(page, "s/epoch")
    assert column(page, "s/epoch") == ["101", "10.0", "9.00", "–"]
    click(page, "parallel")
    assert column(page, "parallel") == ["ddp", "dp", "horovod", "single"]


def test_the_filter_leaves_rows_and_charts_with_all_its_words(page: Chrome):
    field = page.find_element(By.ID, "filter")
    field.send_keys("completed D")
    assert column(page, "parallel") == ["single", "ddp", "horovod"]  # "completed" has a d
    field.clear()
    field.send_keys("Completed ddp")
    assert column(page, "parallel") == ["ddp"]
    assert page.find_element(By.ID, "count").text == "1 of 4 jobs"
    drawn = "return document.getElementById('epoch_times').data.map(trace => trace.x[0])"
    assert page.execute_script(drawn) == [9]


def test_charts_are_drawn(page: Chrome):
    titles = [title.text for title in page.find_elements(By.CSS_SELECTOR, "figcaption h3")]
    assert titles == [
        "Seconds per epoch, and speed-up",
        "Validation accuracy against seconds of training",
        "Loss of each run against its steps",
    ]
    assert len(page.find_elements(By.CSS_SELECTOR, ".chart .main-svg")) >= 3


def test_two_runs_show_their_differing_keys(page: Chrome):
    Select(page.find_element(By.ID, "first")).select_by_index(0)
    Select(page.find_element(By.ID, "second")).select_by_index(2)
    lines = [line.text for line in page.find_elements(By.CSS_SELECTOR, "#keys tbody tr")]
    assert lines == ["optimizer.lr 0.0 0.2", "parallel.name single horovod"]
    Select(page.find_element(By.ID, "second")).select_by_index(0)
    assert page.find_element(By.CSS_SELECTOR, "#keys tbody").text == "no difference"


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_wider_than_the_window(page: Chrome, width: int):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page.refresh()
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_link_leads_into_the_runs_folder(page: Chrome, sweep: Sweep):
    link = page.find_element(By.CSS_SELECTOR, "#table tbody a").get_attribute("href")
    assert link == (sweep.folder / "0").as_uri() + "/"
