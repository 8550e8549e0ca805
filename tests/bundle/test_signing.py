import sys

import numpy as np
import pytest

import thrifty
from thrifty.bundle import from_bytes, to_bytes
from thrifty.bundle import objects as file_bytes
from thrifty.cli import main
from thrifty.errors import DataUnavailableError, InvalidInputError

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")

PEM = serialization.Encoding.PEM
PKCS8 = serialization.PrivateFormat.PKCS8
SUBJECT = serialization.PublicFormat.SubjectPublicKeyInfo
OPEN = serialization.NoEncryption()

PRIVATE = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = PRIVATE.public_key()
STRANGER = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))

APPENDED = 64 + 32 + 8


@pytest.fixture(scope="module")
def cascade(fitted):
    return fitted["cascade"]


@pytest.fixture(scope="module")
def plain(cascade):
    """Another file: the same one would have the same signature."""
    return to_bytes(cascade, evidence=False)


@pytest.fixture(scope="module")
def signed(cascade):
    return to_bytes(cascade, private_key=PRIVATE)


@pytest.fixture
def pem_file(tmp_path):
    def write(key):
        private = isinstance(key, ed25519.Ed25519PrivateKey)
        path = tmp_path / ("private.pem" if private else "public.pem")
        path.write_bytes(key.private_bytes(PEM, PKCS8, OPEN) if private else key.public_bytes(PEM, SUBJECT))
        return path

    return write


def test_a_signature_is_appended_and_changes_nothing_before_it(cascade):
    plain, signed = to_bytes(cascade, full="absent"), to_bytes(cascade, full="absent", private_key=PRIVATE)
    assert signed[:-APPENDED] == plain
    PUBLIC.verify(signed[-APPENDED : -APPENDED + 64], plain)


@pytest.mark.parametrize("form", ["object", "bytes", "path", "text"])
def test_a_signed_file_loads_with_its_key_in_any_form_and_without_one(cascade, form, pem_file, tmp_path):
    def shown(key):
        path = pem_file(key)
        return {"object": key, "bytes": path.read_bytes(), "path": path, "text": str(path)}[form]

    path, X = tmp_path / "cascade.thrifty", np.zeros((1, cascade.n_features_in_))
    thrifty.save(cascade, path, private_key=shown(PRIVATE))
    for again in (thrifty.load(path, public_key=shown(PUBLIC)), thrifty.load(path)):
        assert again.predict(X) == cascade.predict(X)


def test_what_is_not_signed_or_not_by_the_right_key_is_refused_before_it_is_read(plain, signed, monkeypatch):
    def read(*arguments, **known):
        raise AssertionError("something was read")

    monkeypatch.setattr(file_bytes, "unpack", read)
    stranger = STRANGER.public_key()
    changed = bytearray(signed)
    changed[50] ^= 1
    cut_off = signed[:-1]
    for data, key, words in (
        (plain, PUBLIC, "the file is not signed"),
        (cut_off, PUBLIC, "the file is not signed"),
        (signed[-APPENDED:], PUBLIC, "the file is not signed"),
        (b"", PUBLIC, "the file is not signed"),
        ("text", PUBLIC, "the file is not signed"),
        (signed, stranger, "signature of the file does not fit"),
        (bytes(changed), PUBLIC, "signature of the file does not fit"),
        (plain + signed[-APPENDED:], PUBLIC, "signature of the file does not fit"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            from_bytes(data, public_key=key)
    with pytest.raises(AssertionError, match="something was read"):
        from_bytes(signed, public_key=PUBLIC)


@pytest.mark.parametrize("public_key", [None, PUBLIC], ids=["no key", "key"])
def test_no_bit_of_a_signature_can_change_unnoticed(signed, public_key):
    for place in range(len(signed) - APPENDED, len(signed)):
        changed = bytearray(signed)
        changed[place] ^= 1 << place % 8
        with pytest.raises(InvalidInputError, match="damaged|not signed|does not fit"):
            from_bytes(bytes(changed), public_key=public_key)


OTHER_KIND = ec.generate_private_key(ec.SECP256R1())
LOCKED = PRIVATE.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"secret"))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (b"no key", "private_key must be an ed25519 key in PEM form"),
        (PUBLIC, "private_key must be an Ed25519PrivateKey .* got Ed25519PublicKey"),
        (OTHER_KIND.private_bytes(PEM, PKCS8, OPEN), "private_key must be an Ed25519PrivateKey"),
        (LOCKED, "private_key is encrypted"),
        (7, "got int"),
    ],
    ids=["garbage", "public", "other kind", "locked", "number"],
)
def test_a_key_that_cannot_sign_is_refused(cascade, key, words):
    with pytest.raises(InvalidInputError, match=words):
        to_bytes(cascade, private_key=key)


def test_a_key_that_cannot_verify_is_refused(signed, tmp_path):
    with pytest.raises(
        InvalidInputError, match="public_key must be an Ed25519PublicKey .* got Ed25519PrivateKey"
    ):
        from_bytes(signed, public_key=PRIVATE)
    with pytest.raises(InvalidInputError, match="public_key must be an ed25519 key in PEM form"):
        from_bytes(signed, public_key=PRIVATE.private_bytes(PEM, PKCS8, OPEN))
    with pytest.raises(DataUnavailableError, match="public_key '.*absent.pem' does not exist"):
        from_bytes(signed, public_key=tmp_path / "absent.pem")
    with pytest.raises(InvalidInputError, match="cannot be read: Is a directory"):
        from_bytes(signed, public_key=tmp_path)


def test_without_cryptography_keys_are_refused_by_the_name_of_the_extra_and_files_load(signed, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    assert from_bytes(signed).n_features_in_ > 0
    with pytest.raises(InvalidInputError, match=r"pip install thrifty\[signing\]"):
        from_bytes(signed, public_key=b"any")


@pytest.mark.slow
def test_commands_sign_and_verify(make_table, small_fits, pem_file, tmp_path, capsys):
    table, system = tmp_path / "table.csv", tmp_path / "system.thrifty"
    make_table(200).to_csv(table, index=False)
    private, public = str(pem_file(PRIVATE)), str(pem_file(PUBLIC))
    options = [
        "--target",
        "label",
        "--full",
        "boosting",
        "--private-key",
        private,
    ]
    assert main(["fit", str(table), *options, "-o", str(system)]) == 0
    assert main(["frontier", str(system), "--public-key", public]) == 0
    thrifty.save(thrifty.load(system), system)
    assert main(["frontier", str(system), "--public-key", public]) == 2
    assert "is not signed" in capsys.readouterr().err
