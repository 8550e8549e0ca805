"""The ledger of language models: a file that nothing but its own gateway changes, and that no damage ends."""

import errno
import os
import struct

import pytest

from thrifty.errors import InvalidInputError, RemoteFailure
from thrifty.serve.language_models import DayLedger

DAY = 20_000


def ledger(path, limit=1.0):
    return DayLedger(limit, path, clock=lambda: DAY * 86_400.0)


def spend(book, most, amount):
    with book.reserved(most) as bill:
        bill.amount = amount


def test_what_was_spent_is_kept_also_by_a_file_that_is_cut_meanwhile(tmp_path):
    path = tmp_path / "ledger"
    book = ledger(path)
    spend(book, 0.5, 0.25)
    os.truncate(path, 0)  # memory mapped from it would end the process at the next call
    spend(book, 0.5, 0.25)
    book.close()
    again = ledger(path)
    assert again.today == 0.5
    with pytest.raises(RemoteFailure, match="exceed"), again.reserved(0.6):
        pass


@pytest.mark.parametrize(
    "content",
    [
        b"dear diary, this is no ledger at all",
        b"sixteen letters!",
        struct.pack("=dd", DAY, -float("inf")),
        struct.pack("=dd", DAY, float("nan")),
        struct.pack("=dd", DAY, -1.0),
    ],
)
def test_a_file_that_is_no_ledger_is_refused_and_stays_as_it_is(tmp_path, content):
    path = tmp_path / "ledger"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="ledger .* must hold the dollars of one day.*another file"):
        ledger(path)
    assert path.read_bytes() == content


def test_a_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "ledger"
    book = ledger(path)
    spend(book, 0.5, 0.25)
    book.close()
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="damaged"):
        ledger(path)


def test_a_ledger_of_a_former_release_is_read(tmp_path):
    path = tmp_path / "ledger"
    path.write_bytes(struct.pack("=dd", DAY, 0.75))
    assert ledger(path).today == 0.75


def test_on_a_full_disk_no_call_is_made_that_could_not_be_counted(tmp_path, monkeypatch):
    book = ledger(tmp_path / "ledger")

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(RemoteFailure, match="cannot be written"), book.reserved(0.5):
        raise AssertionError("the model was asked")
    assert book.today == 0.0
    monkeypatch.undo()
    spend(book, 0.5, 0.25)
    assert book.today == 0.25


def test_a_ledger_belongs_to_one_gateway(tmp_path):
    book = ledger(tmp_path / "ledger")
    with pytest.raises(InvalidInputError, match="another one holds it"):
        ledger(tmp_path / "ledger")
    assert book.today == 0.0
