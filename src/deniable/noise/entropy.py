"""Random bits: AES-256 in counter mode, keyed by the operating system. One source for the whole process.

A `ReplayEntropy` returns the same bits for the same seed. It is for tests, and its `is_private` is False.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
import threading
import warnings
import weakref
from abc import ABC, abstractmethod
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from deniable import arguments
from deniable.arguments import NOT_NEGATIVE
from deniable.errors import InvalidParameter, NotPrivateWarning

Words = npt.NDArray[np.uint64]
Bytes = bytes  # the method of this name hides the type inside the classes

KEY, BLOCK, WORD = 32, 16, 64
REKEY_AFTER = 2**26
"""Bytes under one key. Blocks under one key never repeat, while truly random blocks might: 2²² of them can be
distinguished from random with advantage at most 2⁴⁴/2¹²⁹ = 2⁻⁸⁵, if AES-256 is a pseudorandom permutation.
"""

SPARE = 512
"""Words generated ahead for small requests: one call of the cipher costs as much as a few thousand bytes."""

SMALL = 64
"""Requests of at most this many bytes are served from the words generated ahead."""

PIECE = 1 << 16
_ZEROS = memoryview(bytes(PIECE))  # slices of it are not copies


class Entropy(ABC):
    """A source of independent fair bits."""

    is_private: ClassVar[bool]
    """Whether an answer drawn from these bits has its guarantee. False for any source that can be replayed."""

    @abstractmethod
    def bytes(self, count: int) -> Bytes:
        """`count` random bytes. InvalidParameter unless `count` is a whole number from 0."""

    def lineage(self) -> object:
        """An object that changes when draws made ahead must be discarded; None if draws may not be made ahead."""
        return None

    def forget(self) -> None:  # noqa: B027 (most sources have nothing to forget)
        """Discard everything generated ahead and take new keys. Call it after a virtual machine resumes from a
        snapshot.
        """

    def words(self, count: int) -> Words:
        """`count` random 64-bit words, as a new array."""
        made = np.empty(arguments.whole("count", count, NOT_NEGATIVE), dtype=np.uint64)
        self.fill(made)
        return made

    def fill(self, words: Words) -> None:
        """Fill an existing array with random 64-bit words."""
        words[:] = np.frombuffer(self.bytes(8 * words.size), dtype="<u8")

    def word(self) -> int:
        """One random 64-bit word."""
        return int.from_bytes(self.bytes(8), "little")

    def bits(self, count: int) -> int:
        """An integer of `count` random bits, uniform on 0 .. 2^count - 1."""
        asked = arguments.whole("count", count, NOT_NEGATIVE)
        if asked <= WORD:
            return self.word() >> (WORD - asked)
        return int.from_bytes(self.bytes((asked + 7) // 8), "little") >> (-asked % 8)


@final
class _Stream:
    """The keystream of one key. Belongs to one thread.

    Words generated ahead are taken by list.pop, which is atomic: a signal handler that draws noise in the middle of
    another draw gets different bits.
    """

    __slots__ = ("__weakref__", "_cipher", "_made", "_spare")

    def __init__(self, key: Bytes) -> None:
        self._cipher: CipherContext = Cipher(algorithms.AES(key), modes.CTR(bytes(BLOCK))).encryptor()
        self._made = 0
        self._spare: list[int] = []

    def word(self) -> int:
        while True:
            try:
                return self._spare.pop()
            except IndexError:
                made = np.empty(SPARE, dtype=np.uint64)
                self.fill(made)
                self._spare.extend(made.tolist())

    def bytes(self, count: int) -> Bytes:
        if count <= SMALL:
            return b"".join(self.word().to_bytes(8, "little") for _ in range(-(-count // 8)))[:count]
        return self._update(bytes(count))

    def _update(self, zeros: Bytes) -> Bytes:
        self._made += len(zeros)
        return self._cipher.update(zeros)

    def fill(self, words: Words) -> None:
        if not words.size:
            return
        target = memoryview(words.data).cast("B")
        size = len(target)
        done = 0
        while done + BLOCK < size:  # the cipher needs room for one block more than it writes
            piece = min(PIECE, size - done - BLOCK)
            self._cipher.update_into(_ZEROS[:piece], target[done:])
            done += piece
        target[done:] = self._update(bytes(size - done))
        self._made += done
        if sys.byteorder == "big":
            words.byteswap(inplace=True)

    @property
    def worn(self) -> bool:
        """Whether this key has produced as many bytes as it may."""
        return self._made >= REKEY_AFTER

    def erase(self) -> None:
        """Overwrite the words generated ahead."""
        self._spare[:] = [0] * len(self._spare)
        self._spare.clear()


@final
class SystemEntropy(Entropy):
    """AES-256-CTR under keys from the operating system: one stream per thread, and new streams after a fork."""

    is_private = True

    def __init__(self) -> None:
        self._streams = threading.local()
        self._all: weakref.WeakSet[_Stream] = weakref.WeakSet()
        self._process = os.getpid()
        self._lineage = object()

    def lineage(self) -> object:
        if self._process != os.getpid():  # the hook below sees forks made by Python; this check sees all others
            self.forget()
        return self._lineage

    def bytes(self, count: int) -> Bytes:
        return self._stream().bytes(arguments.whole("count", count, NOT_NEGATIVE))

    def word(self) -> int:
        return self._stream().word()

    def fill(self, words: Words) -> None:
        self._stream().fill(words)

    def _stream(self) -> _Stream:
        self.lineage()
        stream: _Stream | None = getattr(self._streams, "stream", None)
        if stream is None or stream.worn:
            stream = _Stream(os.urandom(KEY))
            self._streams.stream = stream
            self._all.add(stream)
        return stream

    def forget(self) -> None:
        old, self._all = self._all, weakref.WeakSet()
        while True:
            try:
                streams = list(old)
                break
            except RuntimeError:  # another thread was adding one
                continue
        self._streams = threading.local()
        self._process = os.getpid()
        self._lineage = object()
        for stream in streams:
            stream.erase()

    def __reduce__(self) -> str:
        return "_PROCESS"  # a pickle refers to the source of the process that loads it, and never contains a key


@final
class ReplayEntropy(Entropy):
    """The same bits for the same seed. For tests only: an answer drawn with it protects nobody.

    >>> from deniable import noise
    >>> noise.ReplayEntropy(7).bits(16) == noise.ReplayEntropy(7).bits(16)
    True
    >>> noise.ReplayEntropy(7).is_private
    False
    """

    is_private = False

    def __init__(self, seed: int) -> None:
        self._seed = arguments.whole("seed", seed)
        self._stream = _Stream(hashlib.sha256(b"deniable replay %d" % self._seed).digest())

    def bytes(self, count: int) -> Bytes:
        return self._stream.bytes(arguments.whole("count", count, NOT_NEGATIVE))

    def word(self) -> int:
        return self._stream.word()

    def fill(self, words: Words) -> None:
        self._stream.fill(words)

    def __repr__(self) -> str:
        return f"ReplayEntropy({self._seed})"


_PROCESS = SystemEntropy()
if hasattr(os, "register_at_fork"):  # Windows has no fork, so no child inherits this state there
    os.register_at_fork(after_in_child=_PROCESS.forget)
atexit.register(_PROCESS.forget)


def current() -> Entropy:
    """The process-wide cryptographic source, which every sampler uses by default."""
    return _PROCESS


def given_or_current(entropy: Entropy | None) -> Entropy:
    """The entropy that was passed, or the source of the process if it is None. Raises InvalidParameter for anything
    else.
    """
    if entropy is None:
        return current()
    if not isinstance(entropy, Entropy):
        raise InvalidParameter("entropy", entropy, "must be an Entropy")
    return entropy


def checked_entropy(entropy: Entropy | None) -> Entropy | None:
    """The entropy that a caller passed for one answer, unchanged.

    Issues a NotPrivateWarning, at the line that called the caller, if the entropy can be replayed. Raises
    InvalidParameter unless it is None or an Entropy.
    """
    if entropy is not None and not isinstance(entropy, Entropy):
        raise InvalidParameter("entropy", entropy, "must be an Entropy")
    if entropy is not None and not entropy.is_private:
        warnings.warn("this was drawn with replayable entropy: it is not private", NotPrivateWarning, stacklevel=3)
    return entropy
