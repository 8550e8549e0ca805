"""The examples of a sensor loop, as its makefile builds and runs it, and of a page."""

import runpy
import shutil
import sys

import numpy as np
import pandas as pd
import pytest

import thrifty
from tests.device.targets import START, emulated, needs, run


@emulated
@pytest.mark.slow
def test_the_sensor_loop_measures_and_sends_what_the_system_in_python_does(tmp_path, monkeypatch):
    needs("make", "arm-none-eabi-gcc", "qemu-system-arm")
    folder = shutil.copytree(START, tmp_path / "device")
    monkeypatch.chdir(folder)
    runpy.run_path("fit.py")  # here, where everything is imported; the makefile finds what it writes
    printed = run("make", "-s", "run", f"PYTHON={sys.executable}", cwd=folder, capture_output=True, text=True)
    shown = dict(
        line.split(": ") for line in (printed.stdout + printed.stderr).splitlines() if line.count(": ") == 1
    )
    chain = thrifty.load(folder / "system.thrifty").chain_
    X = np.fromfile(folder / "readings.bin", dtype=np.float32).reshape(-1, len(chain.names))
    route = chain.walk(chain.reader(pd.DataFrame(X, columns=chain.names))).route
    held = np.array([len(chain.walker.held_at(place)) for place in range(len(chain.stages))])
    assert int(shown["rows"]) == len(X)
    assert int(shown["measured"]) == held[np.minimum(route, len(held) - 1)].sum()
    assert int(shown["sent to the server"]) == np.count_nonzero(route == len(held)) > 0


@emulated
@pytest.mark.slow
def test_the_page_asks_for_what_the_system_in_python_does_until_it_is_sure(tmp_path, monkeypatch):
    needs("clang", "wasm-ld", "chromium", "chromedriver")
    webdriver = pytest.importorskip("selenium.webdriver")
    monkeypatch.setattr(sys, "argv", ["page.py", str(tmp_path)])
    runpy.run_path(str(START / "page.py"))
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path / 'p'}",
    ):
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as browser:
        browser.implicitly_wait(10)
        browser.get((tmp_path / "page.html").as_uri())
        facts = browser.execute_script("return facts")
        chain = thrifty.load(tmp_path / "page.thrifty")
        X = pd.DataFrame(np.array(facts["rows"], dtype=np.float32), columns=facts["names"])
        walk = chain.walk(chain.reader(X))
        labels = chain.task.best(walk.scores)
        for row, route in enumerate(walk.route.tolist()):
            held = len(chain.walker.held_at(min(route, len(chain.stages) - 1)))
            for _ in range(held):
                assert not browser.find_element("id", "answer").text
                browser.find_element("css selector", "form button").click()
            assert facts["classes"][labels[row]] in browser.find_element("id", "answer").text
            assert f"{held} of 30 measurements" in browser.find_element("id", "saved").text
            browser.find_element("id", "again").click()
        assert not browser.get_log("browser")
