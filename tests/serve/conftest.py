"""A real model server that misbehaves, in a process of its own, on the loopback, for the time of some tests."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

LIFETIME = 900  # seconds; a server that is forgotten ends by itself


@contextmanager
def _misbehaving_server():
    """A model server in a process of its own that fails as its path says."""
    script = Path(__file__).with_name("misbehaving.py")
    process = subprocess.Popen(
        [sys.executable, "-I", script, str(LIFETIME)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="session")
def misbehaving_server():
    """``with misbehaving_server() as (process, port):`` such a server."""
    return _misbehaving_server


@pytest.fixture(scope="session")
def misbehaving_port():
    """The port of such a server that the tests share."""
    with _misbehaving_server() as (_, port):
        yield port
