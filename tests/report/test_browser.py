"""The page in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from manyheads.runner.records.run_set import gather
from manyheads.runner.report import comparison_page as module
from manyheads.runner.report.comparison import compare
from manyheads.runner.report.comparison_page import as_page
from manyheads.runner.run.run_folder import RunFolder
from tests.browser import opened, seen_as
from tests.report.sweep import Sweep
from tests.report.test_pictures import draw

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, real_run: RunFolder) -> Path:
    """The page of four jobs, one of which was skipped."""
    sweep = Sweep(tmp_path_factory.mktemp("browser") / "sweep", real_run)
    note = "+model.note=<img src=x onerror=console.error(1)>" + "_and_a_long_rest" * 8
    for number, seconds in enumerate((10.0, 9.0, 101.0)):
        parallel = ("single", "ddp", "horovod")[number]
        draw(sweep.job(f"parallel={parallel}", f"optimizer.lr=0.{number}", note, seconds=seconds), "samples", number)
    sweep.job("parallel=dp", "optimizer.lr=0.5", state="skipped", reason="no GPU" * 60)
    path = sweep.folder / "comparison.html"
    path.write_text(as_page(sweep.compared(), sweep.folder))
    return path


@pytest.fixture
def page(file: Path, browser: Chrome) -> Iterator[Chrome]:
    with opened(browser, file) as page:
        yield page


def column(page: Chrome, title: str) -> list[str]:
    """The cells of the rows that can be seen."""
    script = """const at = [...document.querySelectorAll("#table th")].findIndex(
        (cell) => cell.textContent.trim() === arguments[0]);
        return [...document.querySelectorAll("#table tbody tr")].filter((row) => row.offsetParent !== null)
        .map((row) => row.cells[at].innerText);"""
    return page.execute_script(script, title)


def click(page: Chrome, title: str) -> None:
    page.find_element(By.XPATH, f"//table[@id='table']//button[text()='{title}']").click()


def names(page: Chrome, chart: str) -> list[str]:
    return page.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)", f"#{chart} .name"
    )


def test_columns_sort_by_their_numbers_and_the_filter_leaves_rows_and_charts_with_all_its_words(page: Chrome):
    assert column(page, "job") == ["0", "1", "2", "3"]
    click(page, "s/epoch")
    assert column(page, "s/epoch") == ["9.00", "10.0", "101", "–"]  # what was not measured comes last
    click(page, "s/epoch")
    assert column(page, "s/epoch") == ["101", "10.0", "9.00", "–"]
    assert [name.split()[0] for name in names(page, "epoch_times")] == ["horovod", "single", "ddp"]
    click(page, "parallel")
    assert column(page, "parallel") == ["ddp", "dp", "horovod", "single"]
    field = page.find_element(By.ID, "filter")
    field.send_keys("completed D")
    assert column(page, "parallel") == ["ddp", "horovod", "single"]  # "completed" has a d
    field.clear()
    field.send_keys("Completed ddp")
    assert column(page, "parallel") == ["ddp"]
    assert page.find_element(By.ID, "count").text == "1 of 4 jobs"
    assert [name.split()[0] for name in names(page, "epoch_times")] == ["ddp"]
    assert page.find_element(By.CSS_SELECTOR, "#epoch_times .value").text == "9.00 s"


def test_charts_are_drawn_and_what_the_pointer_is_at_is_brought_out(page: Chrome):
    titles = [title.text for title in page.find_elements(By.CSS_SELECTOR, "figcaption h3")]
    assert titles == [
        "Seconds per epoch, and speed-up",
        "Peak memory per device",
        "Validation accuracy against seconds of training",
        "Best validation accuracy against lr",
        "Loss of each run against its steps",
    ]
    of_losses = page.find_element(By.ID, "losses")
    assert {"loss", "step"} <= {text.text for text in of_losses.find_elements(By.CSS_SELECTOR, "text.title")}
    assert len(of_losses.find_elements(By.CSS_SELECTOR, ".series .curve")) == 3
    assert page.execute_script("return document.querySelector('#losses .curve').getBBox().width") > 100
    name = of_losses.find_elements(By.CSS_SELECTOR, ".legend button")[1]
    ActionChains(page).move_to_element(name).perform()
    opacity = "return [...document.querySelectorAll('#losses .series')].map((each) => getComputedStyle(each).opacity)"
    assert sorted(map(float, page.execute_script(opacity))) == [0.13] * 4 + [1.0] * 2  # training and validation
    spot = page.find_element(By.CSS_SELECTOR, "#metrics .series circle")
    ActionChains(page).move_to_element(spot).perform()
    tip = page.find_element(By.CSS_SELECTOR, "#metrics .tip").text
    assert "accuracy (%): " in tip
    assert "training time (s): " in tip


def test_two_runs_show_their_differing_keys_and_a_link_leads_into_a_runs_folder(page: Chrome, file: Path):
    Select(page.find_element(By.ID, "first")).select_by_index(0)
    Select(page.find_element(By.ID, "second")).select_by_index(2)
    lines = [line.text for line in page.find_elements(By.CSS_SELECTOR, "#keys tbody tr")]
    assert lines == ["optimizer.lr 0.0 0.2", "parallel.name single horovod"]
    Select(page.find_element(By.ID, "second")).select_by_index(0)
    assert page.find_element(By.CSS_SELECTOR, "#keys tbody").text == "no difference"
    link = page.find_element(By.CSS_SELECTOR, "#table tbody a").get_attribute("href")
    assert link == (file.parent / "0").as_uri() + "/"


def test_it_fits_the_window_shows_accuracy_first_and_follows_the_system_into_the_dark(page: Chrome):
    measure = """const cells = document.querySelectorAll("#table th");
        return {page: document.documentElement.scrollWidth, frame: document.getElementById("losses").clientWidth,
          svg: document.querySelector("#losses svg").clientWidth,
          accuracy: [...cells].findIndex((cell) => cell.textContent.trim() === "accuracy"),
          speed: [...cells].findIndex((cell) => cell.textContent.trim() === "s/epoch"),
          quality: document.getElementById("metrics").getBoundingClientRect().top,
          times: document.getElementById("epoch_times").getBoundingClientRect().top}"""
    for width, scheme in ((1280, "light"), (400, "dark")):
        with seen_as(page, width=width, scheme=scheme, measure=measure) as found:
            assert found["page"] <= width
            assert found["svg"] == found["frame"]
            assert found["accuracy"] < found["speed"]
            assert (found["quality"] < found["times"]) == (width == 400)


def test_all_rows_of_a_long_table_can_be_reached_sorted_and_found(file: Path, browser: Chrome, monkeypatch):
    monkeypatch.setattr(module, "FIRST_ROWS", 1)
    long = file.with_name("long.html")
    long.write_text(as_page(compare(gather([str(file.parent)])), file.parent))
    browser.get_log("browser")
    browser.get(long.as_uri())
    WebDriverWait(browser, 30).until(lambda page: column(page, "job") == ["0", "1", "2", "3"])
    click(browser, "s/epoch")
    WebDriverWait(browser, 30).until(lambda page: column(page, "s/epoch") == ["9.00", "10.0", "101", "–"])
    classes = (
        "return new Set([...document.querySelectorAll('#table tbody tr')].map((row) => row.cells[0].className)).size"
    )
    assert browser.execute_script(classes) == 1
    browser.find_element(By.ID, "filter").send_keys("horovod")
    assert column(browser, "parallel") == ["horovod"]
    assert browser.find_element(By.CSS_SELECTOR, "#table tbody a").get_attribute("href").endswith("/2/")
    assert browser.get_log("browser") == []


def test_pictures_follow_the_filter(page):
    drawn = page.find_elements(By.CSS_SELECTOR, "#pictures img")
    assert [picture.get_property("naturalWidth") for picture in drawn] == [4, 4, 4]
    page.find_element(By.ID, "filter").send_keys("ddp")
    shown = [picture.get_attribute("alt") for picture in drawn if picture.is_displayed()]
    assert len(shown) == 1
    assert shown[0].startswith("samples of 1: ")
