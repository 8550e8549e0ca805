"""Compiling is put off, announced once, kept for the next process, and works where nothing can be kept."""

import os
import subprocess
import sys

import pytest

ROUND = """
import numpy as np
from thrifty.tasks.logistic import round_to
out = np.empty(3)
round_to(np.array([0.1, 0.2, 0.7]), np.ones(3), 4, out)
print(out.tolist())
"""
ANSWER = "[0.125, 0.1875, 0.6875]\n"


def run(code, cache):
    """A process of its own, with its own place for compiled code."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )


def test_importing_an_estimator_does_not_import_the_compiler(tmp_path):
    code = "import sys; from thrifty import BudgetedClassifier; print('numba' in sys.modules)"
    assert run(code, tmp_path).stdout == "False\n"


def test_the_first_process_says_once_that_it_compiles_and_the_second_finds_the_result(tmp_path):
    first, second = (
        run(ROUND + ROUND.replace("3", "4").replace("0.7]", "0.7, 0]"), tmp_path) for _ in range(2)
    )
    assert first.stderr.count("once per installation") == 1
    assert second.stderr == ""
    assert first.stdout == second.stdout
    assert first.stdout.startswith(ANSWER)


def test_without_a_folder_to_write_to_compiled_code_is_not_kept_which_is_said_once(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    # Numba would go on to the folder of the package and to the user's own, which whoever tests may write to.
    only = "from numba.core.caching import FunctionCache\nimplementation = FunctionCache._impl_class\n"
    only += "implementation._locator_classes = implementation._locator_classes[:1]\n"
    done = run(only + ROUND, in_the_way / "folder")
    assert done.stdout == ANSWER
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1


def test_a_full_disk_does_not_stop_a_fit(tmp_path, small_disk):
    with small_disk(tmp_path, "16k"):
        done = run(ROUND, tmp_path)
        assert done.stdout == ANSWER
        assert done.stderr.count("No space left") == 1


@pytest.mark.parametrize("n_threads", [8])
def test_several_threads_may_make_the_first_call_at_once(tmp_path, n_threads):
    code = f"""
from concurrent.futures import ThreadPoolExecutor
import sys
import numpy as np
from thrifty.trees import Binner
sys.setswitchinterval(1e-6)
X = np.arange(12.0).reshape(6, 2)
with ThreadPoolExecutor({n_threads}) as pool:
    tables = list(pool.map(lambda _: Binner().fit_transform(X), range({n_threads})))
print({{table.padded.tobytes() for table in tables}} == {{tables[0].padded.tobytes()}}, len(tables))
"""
    assert run(code, tmp_path).stdout == f"True {n_threads}\n"
