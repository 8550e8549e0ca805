import errno
import os
import random
import re
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

import thrifty
from thrifty import files
from thrifty.bundle.container import Contents, check_key, pack, unpack
from thrifty.bundle.save_load import load_model
from thrifty.cli import main
from thrifty.engine.table.files import read_table
from thrifty.errors import DataUnavailableError, InvalidInputError
from thrifty.scale import Scorer
from thrifty.scale.folder import find_files


def test_a_full_disk_leaves_the_old_file_as_it_was(fitted, small_disk, tmp_path):
    with small_disk(tmp_path, "64k") as folder:
        path = folder / "system.thrifty"
        thrifty.save(fitted["confidence"], path)
        before = path.read_bytes()
        with pytest.raises(InvalidInputError, match=os.strerror(errno.ENOSPC)):
            files.write_atomically(path, bytes(100_000))
        assert path.read_bytes() == before
        assert os.listdir(folder) == [path.name]
        assert isinstance(thrifty.load(path), thrifty.ConfidenceRouter)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("a\0b.txt", "embedded null byte"), (f"{'x' * 300}.txt", os.strerror(errno.ENAMETOOLONG))],
)
def test_a_path_that_no_file_can_have_is_named_wherever_it_is_given(fitted, path, reason):
    system, rule = fitted["linear"], f"{re.escape(repr(path)[:9])}.* can be the path of no file: .*{reason}"
    doors = [
        *(thrifty.load, load_model, Scorer, find_files, read_table, thrifty.Prices.read),
        lambda path: thrifty.save(system, path),
        lambda path: thrifty.export(system, path),
        lambda path: check_key("public_key", path),
    ]
    for door in doors:
        with pytest.raises(InvalidInputError, match=rule):
            door(path)
    for command in (
        ["fit", path, "--target", "y", "-o", "s"],
        ["explain", path, "rows.csv"],
        ["audit", path, "r"],
    ):
        assert main(command) == 2


KILLED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("files", sys.argv[1])
files = importlib.util.module_from_spec(spec)
spec.loader.exec_module(files)
contents = [open(name, "rb").read() for name in sys.argv[3:]]
print("ready", flush=True)
while True:
    for content in contents:
        files.write_atomically(sys.argv[2], content)
"""


@pytest.mark.slow
def test_a_writer_that_is_killed_at_any_moment_leaves_one_whole_file(tmp_path):
    chance = random.Random(0)
    contents = [pack(Contents({"which": i}, [np.full(400_000, i)])) for i in range(2)]
    inputs = [tmp_path / f"content{i}" for i in range(2)]
    for name, content in zip(inputs, contents, strict=True):
        name.write_bytes(content)
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "system.thrifty"
    files.write_atomically(path, contents[0])
    found = set()

    def left_behind():
        return any(name.endswith(".part") for name in os.listdir(folder))

    for n_killed in range(200):
        if n_killed >= 12 and left_behind():
            break
        command = [sys.executable, "-c", KILLED, files.__file__, str(path), *map(str, inputs)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0.0, 0.05))
            writer.send_signal(signal.SIGKILL)
        found.add(unpack(path.read_bytes()).facts["which"])
    assert found <= {0, 1}
    # At least one of them died between opening its file and giving it its name.
    assert left_behind()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_at_any_step_removes_what_was_begun(step, fitted, tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(errno.EIO, "the disk is broken")

    path = tmp_path / "system.thrifty"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(InvalidInputError, match="cannot be written: the disk is broken"):
        thrifty.save(fitted["confidence"], path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_an_object_that_cannot_be_saved_touches_no_file(tmp_path):
    path = tmp_path / "system.thrifty"
    path.write_bytes(b"old")
    with pytest.raises(InvalidInputError):
        thrifty.save(object(), path)
    assert path.read_bytes() == b"old"


def test_a_link_stays_a_link_and_permissions_stay(fitted, tmp_path):
    real, link = tmp_path / "real.thrifty", tmp_path / "link.thrifty"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    thrifty.save(fitted["confidence"], link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert real.read_bytes() != b"old"
    assert type(thrifty.load(str(link))) is thrifty.ConfidenceRouter


def test_a_path_that_cannot_be_a_file_is_refused_in_words(fitted, tmp_path):
    with pytest.raises(InvalidInputError, match="there is no folder"):
        thrifty.save(fitted["confidence"], tmp_path / "nowhere" / "system.thrifty")
    with pytest.raises(InvalidInputError, match="it is a folder"):
        thrifty.save(fitted["confidence"], tmp_path)
    with pytest.raises(DataUnavailableError, match="does not exist"):
        thrifty.load(tmp_path / "nothing.thrifty")
    with pytest.raises(InvalidInputError, match="no regular file|cannot be read"):
        thrifty.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match="a device, a pipe or a socket"):
        thrifty.save(fitted["confidence"], tmp_path / "pipe")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    with pytest.raises(InvalidInputError, match="no regular file"):
        thrifty.load(tmp_path / "pipe")


def test_a_large_file_is_refused_by_its_size_alone(tmp_path):
    path = tmp_path / "huge.thrifty"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidInputError, match="has 1099511627776 bytes, and 1073741824 are allowed"):
        thrifty.load(path)
