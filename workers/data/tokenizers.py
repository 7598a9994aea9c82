"""Tokenizers: bytes as tokens, or a tokenizer of the `tokenizers` library."""

import hashlib
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from regroup.workers.contract.error_classes import DataError
from regroup.workers.data.sources import find

END_OF_DOCUMENT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
"""Names of the end-of-document token in a `tokenizers` file. If none exists, a new id is added."""


class Tokenizer(Protocol):
    """Conversion of bytes to token ids."""

    identity: str
    """String that changes when the ids change."""
    vocab_size: int
    end_of_document: int

    def encode(self, block: bytes) -> npt.NDArray[np.generic]:
        """Return the ids of complete lines."""
        ...


class ByteTokenizer:
    """Tokenizer with one token for each byte; 256 ends a document."""

    identity = "byte"
    vocab_size = 257
    end_of_document = 256

    def encode(self, block: bytes) -> npt.NDArray[np.generic]:
        """Return the bytes."""
        return np.frombuffer(block, np.uint8)


class FileTokenizer:
    """Tokenizer of the `tokenizers` library, from its JSON file."""

    def __init__(self, source: str) -> None:
        from tokenizers import Tokenizer as Library  # not needed for the byte tokenizer

        text = b"".join(block for file in find(source) for block in file.blocks())
        try:
            self._library = Library.from_str(text.decode())
        except Exception as error:
            raise DataError(f"tokenizer {source!r} is not a tokenizers JSON file: {error}") from error
        self.identity = hashlib.sha256(text).hexdigest()
        end_ids = [self._library.token_to_id(name) for name in END_OF_DOCUMENT]
        size = self._library.get_vocab_size()
        self.end_of_document: int = next((number for number in end_ids if number is not None), size)
        self.vocab_size: int = max(size, self.end_of_document + 1)

    def encode(self, block: bytes) -> npt.NDArray[np.generic]:
        """Return the ids without special tokens. Bytes that are not UTF-8 are replaced."""
        text = block.decode("utf-8", "replace")
        return np.array(self._library.encode(text, add_special_tokens=False).ids, np.uint32)


def tokenizer_of(name: str) -> Tokenizer:
    """Return the byte tokenizer for `byte`, or the tokenizer of a `tokenizers` JSON file.

    Raises:
        DataError: The file does not exist or is not a tokenizer.
    """
    return ByteTokenizer() if name == "byte" else FileTokenizer(name)


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the smallest type that can hold the ids."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
