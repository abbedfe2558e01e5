"""Keys of an owner: Ed25519, in files.

    from deniable.ledger import keys
    owner = keys.new("owner.key")  # and owner.pub, for everybody
    ledger.checkpoint(owner)

The private key is a PEM file (PKCS #8) that only its owner may read; it signs adjustments and checkpoints. The public
key, also a PEM file, verifies them. Source: RFC 8032; the `cryptography` package.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from deniable.errors import InvalidParameter, UnreadableRecord, require_path

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["PublicKey", "SigningKey", "is_signed", "new", "read", "read_public"]


@final
@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies signatures: 32 bytes, as 64 hexadecimal digits."""

    hex: str

    def __post_init__(self) -> None:
        if not isinstance(self.hex, str) or len(self.hex) != 64 or set(self.hex) - set("0123456789abcdef"):
            raise InvalidParameter("key", self.hex, "must be 64 hexadecimal digits of an Ed25519 public key")

    def signed(self, message: bytes, signature: str) -> bool:
        """Whether this key made the signature of exactly this message."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.hex)).verify(bytes.fromhex(signature), message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def pem(self) -> bytes:
        """The key in PEM format."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.hex))
        return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@final
class SigningKey:
    """An owner's private key. Its repr contains the public key only."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw().hex())

    @classmethod
    def generate(cls) -> SigningKey:
        """A new random key. It is not written to a file; see `new`."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    def sign(self, message: bytes) -> str:
        """The signature of a message, in hexadecimal."""
        return self._key.sign(message).hex()

    def pem(self) -> bytes:
        """The private key in PEM format, unencrypted."""
        from cryptography.hazmat.primitives import serialization

        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def __repr__(self) -> str:
        return f"<SigningKey of {self.public.hex}>"


def is_signed(signer: str | None, message: bytes, signature: str | None) -> bool:
    """Whether the key `signer` made the signature of exactly this message. False if one of them is missing."""
    if signer is None or signature is None:
        return False
    try:
        return PublicKey(signer).signed(message, signature)
    except InvalidParameter:  # `signer` is not a key
        return False


def new(path: str | os.PathLike[str]) -> SigningKey:
    """Make a key, and write it to a new file that only its owner may read (0600), with the public key beside it (.pub).

    InvalidParameter if one of the files exists: a lost key cannot be recovered, so files are never overwritten.
    """
    key, place = SigningKey.generate(), Path(require_path("path", path, "owner.key"))
    public = place.with_suffix(".pub")
    if place == public:
        raise InvalidParameter(
            "path", str(place), "has the ending of a public key", "choose a name that ends with .key"
        )
    for file in (place, public):
        if file.exists():
            raise InvalidParameter("path", str(file), "exists already", "name another file; keys are not overwritten")
    for file, mode, text in ((place, 0o600, key.pem()), (public, 0o644, key.public.pem())):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)  # Windows: no change of line ends
        with open(os.open(file, flags, mode), "wb") as opened:
            opened.write(text)
    return key


def read(path: str | os.PathLike[str]) -> SigningKey:
    """The private key in this file. InvalidParameter if other users may read the file; UnreadableRecord if it is not a
    key.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    place = Path(require_path("path", path, "owner.key"))
    text = place.read_bytes()
    if os.name == "posix" and place.stat().st_mode & 0o077:
        raise InvalidParameter("path", str(place), "can be read by other users", "run chmod 600 on it")
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except (TypeError, ValueError):
        key = None  # refused below
    if not isinstance(key, Ed25519PrivateKey):
        raise UnreadableRecord(f"{str(place)!r} is not a private Ed25519 key (PEM, without a password)")
    return SigningKey(key)


def read_public(path: str | os.PathLike[str]) -> PublicKey:
    """The public key in this file; UnreadableRecord if it is not one."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    place = Path(require_path("path", path, "owner.pub"))
    try:
        key = serialization.load_pem_public_key(place.read_bytes())
    except (UnsupportedAlgorithm, ValueError):
        key = None  # refused below
    if not isinstance(key, Ed25519PublicKey):
        raise UnreadableRecord(
            f"{str(path)!r} is not a public Ed25519 key (PEM); such a file begins with -----BEGIN PUBLIC KEY-----"
        )
    return PublicKey(key.public_bytes_raw().hex())
