"""Compiling is put off, announced once, kept for the next process, and works where nothing can be kept."""

import errno
import os
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from thrifty import BudgetedClassifier, StageOptions, save
from thrifty.jit import kernel, lean

SMALL = """
from thrifty.jit import kernel

@kernel
def double(x):
    return 2.0 * x

@kernel
def halve(x):
    return 0.5 * x
"""
DOUBLE = "from small import double\nprint(double(4.0), double(3))\n"
HALVE = "from small import halve\nprint(halve(4.0))\n"
ANSWER = "8.0 6.0\n"


@pytest.fixture
def small(tmp_path):
    """A folder with a module of two small compiled functions: those of thrifty take seconds to compile."""
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "small.py").write_text(SMALL)
    return tmp_path / "module"


def run(code, cache, *folders):
    """A process of its own, with its own place for compiled code."""
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )


@pytest.mark.slow
def test_an_installation_says_once_that_it_compiles_and_later_processes_find_the_result(tmp_path, small):
    first, second = run(DOUBLE, tmp_path, small), run(DOUBLE + HALVE, tmp_path, small)
    assert first.stderr.count("once per installation") == 1
    assert second.stderr == ""  # although it compiles what the first has not called
    assert (first.stdout, second.stdout) == (ANSWER, ANSWER + "2.0\n")


@pytest.mark.slow
def test_a_full_disk_does_not_stop_a_call(tmp_path, small, small_disk):
    (tmp_path / "cache").mkdir()
    with small_disk(tmp_path / "cache", "4k"):
        done = run(DOUBLE, tmp_path / "cache", small)
        assert done.stdout == ANSWER
        assert done.stderr.count("No space left") == 1


@pytest.mark.parametrize("n_threads", [8])
def test_several_threads_may_make_the_first_call_at_once(tmp_path, n_threads):
    code = f"""
from concurrent.futures import ThreadPoolExecutor
import sys
import numpy as np
from thrifty.engine.trees import bin_columns
sys.setswitchinterval(1e-6)
X = np.arange(12.0).reshape(6, 2)
with ThreadPoolExecutor({n_threads}) as pool:
    tables = list(pool.map(lambda _: bin_columns(X), range({n_threads})))
print({{table.padded.tobytes() for table in tables}} == {{tables[0].padded.tobytes()}}, len(tables))
"""
    assert run(code, tmp_path).stdout == f"True {n_threads}\n"


READ_ONLY = """
while read -r _ place _; do mount -o remount,bind,ro "$place" 2>/dev/null; done < /proc/self/mounts
exec "$0" "$@"
"""
SERVE = """
import errno, os, sys, tempfile
import numpy as np
import thrifty, thrifty.learners.trees
kept = os.path.dirname(thrifty.learners.trees.__file__)
for folder in sys.argv[1], os.path.expanduser("~"), kept, "/tmp", "/dev/shm":
    try:
        tempfile.TemporaryFile(dir=folder).close()
        print("can be written to:", folder)
    except OSError as error:
        assert error.errno in (errno.EROFS, errno.ENOENT), error
clf = thrifty.load(sys.argv[2])
X = np.random.default_rng(0).normal(size=(50, clf.n_features_in_))
print(clf.predict(X).tolist(), clf.predict(X[:1]).tolist())
"""


@pytest.mark.slow
def test_a_saved_system_loads_and_answers_where_nothing_at_all_can_be_written(tmp_path):
    path, X = tmp_path / "clf.thrifty", np.random.default_rng(0).normal(size=(50, 4))
    clf = BudgetedClassifier(
        LogisticRegression(), stages=StageOptions(sizes=[(3, 2)]), cv=2, random_state=0
    ).fit(X, X[:, 0] > 0)
    save(clf, path)
    # A file system of its own for one process: permissions would not stop an administrator.
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c", READ_ONLY]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("no process can have a view of the file system of its own here")
    command = [*alone, sys.executable, "-c", SERVE, str(tmp_path), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"{clf.predict(X).tolist()} {clf.predict(X[:1]).tolist()}\n", done.stderr
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1


@pytest.fixture
def next_process(tmp_path, monkeypatch):
    """A small compiled function, found as a process that starts now would find it."""
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    module = tmp_path / "doubling.py"
    module.write_text("def double(x):\n    return 2.0 * x\n")

    def start():
        spec = spec_from_file_location("doubling", module)
        found = module_from_spec(spec)
        spec.loader.exec_module(found)
        monkeypatch.setitem(sys.modules, "doubling", found)
        return kernel(found.double)

    return start


def files_of(double):
    """The index, and the machine code."""
    folder = Path(double.make().stats.cache_path)
    return next(folder.glob("*.nbi")), next(folder.glob("*.nbc"))


def compiles(double):
    """Whether a call is answered rightly, and whether it had to be compiled for that."""
    assert double(4.0) == 8.0
    return sum(double.make().stats.cache_misses.values()) > 0


DAMAGES = {
    "cut off": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("which", [0, 1], ids=["index", "code"])
def test_a_damaged_file_of_compiled_code_is_replaced(next_process, which, damage):
    assert compiles(next_process())
    path = files_of(next_process())[which]
    path.write_bytes(damage(path.read_bytes()))
    assert compiles(next_process())
    assert not compiles(next_process())


def test_code_that_could_not_be_written_is_not_mistaken_for_older_code_of_its_name(next_process, monkeypatch):
    file_of_numba = pytest.importorskip("numba.core.caching").IndexDataCacheFile
    assert compiles(next_process())

    def full(self, name, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file_of_numba, "_load_index", lambda self: {})  # as after a change of the source
        patch.setattr(file_of_numba, "_save_data", full)
        assert compiles(next_process())
    assert compiles(next_process())
    assert not compiles(next_process())


@pytest.mark.parametrize("step", ["_save_index", "_save_data"])
def test_a_disk_that_is_full_at_either_step_of_writing_is_used_once_it_has_room(
    next_process, monkeypatch, step
):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pytest.importorskip("numba.core.caching").IndexDataCacheFile, step, full)
        assert compiles(next_process())
    assert compiles(next_process())
    assert not compiles(next_process())


def test_a_part_works_in_the_functions_that_call_it_and_has_no_machine_code_of_its_own():
    numba = pytest.importorskip("numba")
    half = lean(lambda x: 0.5 * x)
    made = half.make()
    assert numba.njit(lambda x: half(x) + 1.0)(4.0) == 3.0
    (part,) = made.overloads.values()
    assert part.library.get_pointer_to_function(part.fndesc.llvm_func_name) == 0


def test_an_error_of_a_call_is_raised_and_the_next_call_works(next_process):
    double = next_process()
    with pytest.raises(Exception, match="Cannot determine Numba type of <class 'dict'>"):
        double({})
    assert double(4.0) == 8.0
