import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from thrifty.dynamod.sweeping.full_model import Answers

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("interrupted.py")


@pytest.fixture(scope="module")
def script():
    spec = spec_from_file_location("interrupted", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def uninterrupted(script):
    return script.sweep_once(None)


@pytest.mark.parametrize("seed", [1])
def test_a_sweep_killed_again_and_again_ends_as_one_that_never_was(script, uninterrupted, tmp_path, seed):
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(seed)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    runs = [json.loads(line) for line in told.stdout.splitlines()]
    assert runs[-1]["ended"] == "done"
    assert len(runs) >= 3, "the sweep was too fast to be killed at several moments"
    for one in runs:
        assert not set(one["before"]) & set(one["fitted"]), "a cell that was kept was fitted again"
    began_with = [len(one["before"]) for one in runs]
    assert began_with == sorted(began_with)
    resumed = script.sweep_once(tmp_path / "sweep.db")
    assert [cell.settings for cell in resumed.cells] == [cell.settings for cell in uninterrupted.cells]
    for one, other in zip(resumed.cells, uninterrupted.cells, strict=True):
        assert one.fitted == other.fitted
        np.testing.assert_array_equal(one.evidence.gate, other.evidence.gate)
    assert set(script.stored(tmp_path / "sweep.db")) == {Answers.KEY, *(cell.key for cell in resumed.cells)}


def test_a_chain_cut_anywhere_goes_on_from_its_stored_neighbour(script, uninterrupted, tmp_path):
    class EnoughError(Exception):
        pass

    def stop(what, done, total):
        if what == "fitting" and done == 5:
            raise EnoughError

    path = tmp_path / "sweep.db"
    with pytest.raises(EnoughError):
        script.run.sweep(**script.arguments(), store=path, progress=stop)
    assert len(script.stored(path)) == 5 + 1
    resumed = script.sweep_once(path)
    assert [cell.fitted for cell in resumed.cells] == [cell.fitted for cell in uninterrupted.cells]


def is_running(process):
    """Whether a process is there and not just waiting to be counted."""
    stat = Path("/proc", process, "stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_workers_end_when_the_sweep_that_started_them_is_killed_also_those_without_a_cell(tmp_path):
    def wait_until(is_so):
        deadline = time.monotonic() + 60
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.02)
        return is_so()

    command = [sys.executable, str(SCRIPT.with_name("killed.py")), str(tmp_path)]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: len(list(tmp_path.iterdir())) == 1 or parent.poll() is not None)
        busy = next(tmp_path.iterdir()).name
        workers = Path("/proc", str(parent.pid), "task", str(parent.pid), "children").read_text().split()
        assert busy in workers
        assert len(workers) >= 2
    finally:
        parent.kill()
        parent.wait()
    try:
        assert wait_until(lambda: not any(map(is_running, workers)))
    finally:
        for worker in filter(is_running, workers):
            os.kill(int(worker), signal.SIGKILL)
