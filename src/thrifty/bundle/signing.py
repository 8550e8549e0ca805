"""Ed25519 signatures of files: the public key verifies that the owner of the private key wrote the file.

    file | signature of it (64) | SHA-256 of the file's own checksum and the signature (32) | mark (8)

The signature is appended to a whole file and covers all of it; the checksum after it detects accidental changes without
a key. A file that does not end with the mark is not signed.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

from thrifty.errors import DataUnavailableError, InvalidInputError
from thrifty.files import check_path

MARK = b"ed25519\x00"
_SIGNATURE = 64
_DIGEST = 32
_APPENDED = _SIGNATURE + _DIGEST + len(MARK)
_LONGEST_KEY = 1 << 16


def sign(data: bytes, private_key: Any) -> bytes:
    """A file with its signature appended."""
    signature: bytes = check_key("private_key", private_key).sign(data)
    return b"".join([data, signature, hashlib.sha256(data[-_DIGEST:] + signature).digest(), MARK])


def without_signature(data: Any, public_key: Any = None) -> Any:
    """The file itself; with ``public_key``, only if the owner of the private key has signed it as it is.

    Nothing in the file is read before the signature is checked, not even how long its parts are.
    """
    key = None if public_key is None else check_key("public_key", public_key)
    is_bytes = isinstance(data, bytes | bytearray | memoryview)
    view = memoryview(data if is_bytes else b"")
    if bytes(view[-len(MARK) :]) != MARK or len(view) < _APPENDED + _DIGEST:
        if key is None:
            return data
        raise InvalidInputError(
            "the file is not signed, and with `public_key` only signed ones are read. Save it with `private_key`, or "
            "leave `public_key` out if you know where the file comes from."
        )
    body, signature = view[:-_APPENDED], bytes(view[-_APPENDED : -_APPENDED + _SIGNATURE])
    if key is not None:
        from cryptography.exceptions import InvalidSignature

        try:
            key.verify(signature, bytes(body))
        except InvalidSignature:
            raise InvalidInputError(
                "the signature of the file does not fit: it was changed after it was signed, or signed with a key "
                "that does not belong to `public_key`. Ask its author for the file, or for the key."
            ) from None
    if hashlib.sha256(bytes(body[-_DIGEST:]) + signature).digest() != bytes(
        view[-_DIGEST - len(MARK) : -len(MARK)]
    ):
        raise InvalidInputError("the file is damaged: its signature was changed. Save it again.")
    return body


def check_key(name: str, key: Any) -> Any:
    """The key as an object of ``cryptography``, from that, from PEM bytes or from the path of a PEM file.

    ``name`` is "private_key" or "public_key".
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise InvalidInputError(
            "signatures need cryptography; install it with `pip install thrifty[signing]`."
        ) from None
    is_private = name == "private_key"
    if isinstance(key, bytes | str | os.PathLike):
        pem = _pem(name, key)
        try:
            key = (
                serialization.load_pem_private_key(pem, password=None)
                if is_private
                else serialization.load_pem_public_key(pem)
            )
        except TypeError:
            raise InvalidInputError(
                "private_key is encrypted. Open it with "
                "cryptography.hazmat.primitives.serialization.load_pem_private_key and give what that returns."
            ) from None
        except (ValueError, UnsupportedAlgorithm) as error:
            raise InvalidInputError(f"{name} must be an ed25519 key in PEM form: {error}.") from None
    wanted = ed25519.Ed25519PrivateKey if is_private else ed25519.Ed25519PublicKey
    if not isinstance(key, wanted):
        raise InvalidInputError(
            f"{name} must be an {wanted.__name__} of cryptography, its PEM bytes, or the path of a PEM file; got "
            f"{type(key).__name__}."
        )
    return key


def _pem(name: str, key: bytes | str | os.PathLike[str]) -> bytes:
    if isinstance(key, bytes):
        return key
    check_path(key)
    try:
        with Path(key).open("rb") as file:
            return file.read(_LONGEST_KEY)
    except FileNotFoundError:
        raise DataUnavailableError(
            f"{name} {str(key)!r} does not exist. Give the path of a PEM file."
        ) from None
    except OSError as error:
        raise InvalidInputError(f"{name} {str(key)!r} cannot be read: {error.strerror}.") from error
