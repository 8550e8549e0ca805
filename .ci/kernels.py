"""Run the tests that touch floats as other processors would: with other kernels of the BLAS, of numba and of numpy.

    python .ci/kernels.py                            # under each kernel of this architecture
    python .ci/kernels.py ARMV8 last-bits            # under these
    python .ci/kernels.py ARMV8 -- -m 'not slow'     # arguments of pytest behind the dashes

Prints what was really used: a BLAS takes its usual kernel where it does not know the one that is asked for.
"""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = [
    "tests/test_matrix.py",
    "tests/test_pages.py",
    "tests/chain",
    "tests/estimators",
    "tests/cascade",
    "tests/dynamod",
    "tests/routing",
    "README.md",
]
# Kernels of OpenBLAS, each with extensions, as older and newer numpy call them, of which the processor must have one.
BLAS = {
    "aarch64": {"ARMV8": (), "CORTEXA57": (), "NEOVERSEN1": ()},
    "x86_64": {"Prescott": (), "Haswell": ("AVX2", "X86_V3"), "SkylakeX": ("AVX512_SKX", "X86_V4")},
}
USED = """
import numpy, scipy.linalg, threadpoolctl
from numba.core.registry import cpu_target
blas = [one for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"]
print(*(f"{one['filepath'].split('/')[-2]}: {one['architecture']}" for one in blas), sep=", ", end="; ")
print("numba:", cpu_target.target_context.codegen().magic_tuple()[1], end="; ")
print("numpy beyond its baseline:", *numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", ["nothing"]))
"""


def kernels() -> dict[str, dict[str, str]]:
    """Environment variables of each kernel, by name."""
    import numpy as np
    from threadpoolctl import threadpool_info

    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    dispatched = extensions.get("found", [])
    has = {*dispatched, *extensions["baseline"]}
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    found = {}
    if any(one["internal_api"] == "openblas" for one in threadpool_info()):  # macOS has a BLAS of its own
        for name, needed in BLAS.get(machine, {}).items():
            if not needed or has & set(needed):  # OpenBLAS would not check, and the process would die
                found[name] = {"OPENBLAS_CORETYPE": name}
    # Code for any processor of this architecture, kept apart from the code for this one.
    cache = ROOT / ".numba-generic"
    found["numba-generic"] = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(cache)}
    if dispatched:
        found["numpy-baseline"] = {"NPY_DISABLE_CPU_FEATURES": " ".join(dispatched)}
    found["last-bits"] = {"THRIFTY_TEST_LAST_BITS": "1"}
    return found


def run(name: str, variables: dict[str, str], arguments: list[str]) -> int:
    """Run the tests under one kernel, and return what pytest returned."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **variables}
    said = " ".join(f"{key}={value!r}" for key, value in variables.items())
    print(f"== {name}: {said}", flush=True)
    subprocess.run([sys.executable, "-c", USED], env=environment, cwd=ROOT, check=True)
    began = time.monotonic()
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *arguments, *TESTS]
    tests = subprocess.run(pytest, env=environment, cwd=ROOT, check=False)
    print(f"== {name}: exit code {tests.returncode} after {time.monotonic() - began:.0f} s", flush=True)
    return tests.returncode


def main(arguments: list[str]) -> int:
    """Run under all kernels or those that are named; 1 if any test failed."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, for_pytest = arguments[:split], arguments[split + 1 :]
    known = kernels()
    if unknown := sorted(set(names) - set(known)):
        print(f"no kernel {', '.join(unknown)} on this machine; it has {', '.join(known)}")
        return 2
    codes = {name: run(name, known[name], for_pytest) for name in names or known}
    failed = [name for name, code in codes.items() if code]
    print("failed under: " + ", ".join(failed) if failed else f"passed under: {', '.join(codes)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
