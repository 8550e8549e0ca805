"""The example of a sensor loop, as its makefile builds and runs it."""

import shutil
import sys

import numpy as np
import pandas as pd
import pytest

import thrifty
from tests.device.targets import START, needs, run


@pytest.mark.slow
def test_the_sensor_loop_measures_and_sends_what_the_system_in_python_does(tmp_path):
    needs("make", "arm-none-eabi-gcc", "qemu-system-arm")
    folder = shutil.copytree(START, tmp_path / "device")
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
