"""The boxes of many tensors in one file, in few words: equal boxes are stored once. Imports neither torch nor ray."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regroup.workers.state.slices.boxes import Box

Form = tuple[str, int, tuple[int, ...]]
"""Type, bytes of one value, and global shape of a tensor."""


@dataclass(frozen=True)
class TensorBox:
    """A part of a tensor, with what is the same for all tensors of this form."""

    dtype: str
    """Name of the type in torch, without `torch.`: `float32`."""
    item_bytes: int
    """Bytes of one value."""
    global_shape: tuple[int, ...]
    box: Box

    @property
    def form(self) -> Form:
        """Type, bytes of one value and global shape."""
        return self.dtype, self.item_bytes, self.global_shape

    @property
    def size_bytes(self) -> int:
        """Bytes of the box."""
        return self.box.size * self.item_bytes


@dataclass(frozen=True)
class BoxTable:
    """Boxes of tensors in one file, for example in the snapshot of a rank."""

    names: tuple[str, ...]
    boxes: tuple[TensorBox, ...]
    """Every distinct box once. Layers of a model have equal boxes, so these are few."""
    numbers: tuple[int, ...]
    """For each name, the position of its box in `boxes`."""
    starts: tuple[int, ...]
    """For each name, the position of the first byte in the file."""

    @classmethod
    def of(cls, rows: Iterable[tuple[str, TensorBox, int]]) -> "BoxTable":
        """Return the table of rows with name, box and first byte."""
        boxes: dict[TensorBox, int] = {}
        names: list[str] = []
        numbers: list[int] = []
        starts: list[int] = []
        for name, box, start in rows:
            names.append(name)
            numbers.append(boxes.setdefault(box, len(boxes)))
            starts.append(start)
        return cls(tuple(names), tuple(boxes), tuple(numbers), tuple(starts))

    def rows(self) -> Iterator[tuple[str, TensorBox, int]]:
        """Return name, box and first byte of each tensor."""
        for name, number, start in zip(self.names, self.numbers, self.starts, strict=True):
            yield name, self.boxes[number], start

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        boxes = [[box.dtype, box.item_bytes, box.global_shape, box.box.offset, box.box.shape] for box in self.boxes]
        return {"names": self.names, "boxes": boxes, "numbers": self.numbers, "starts": self.starts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "BoxTable":
        """Return the table in plain data.

        Raises:
            ValueError: The data is not a table.
        """
        try:
            boxes = tuple(
                TensorBox(str(dtype), int(item_bytes), tuple(whole), Box(tuple(offset), tuple(shape)))
                for dtype, item_bytes, whole, offset, shape in data["boxes"]
            )
            table = cls(tuple(data["names"]), boxes, tuple(data["numbers"]), tuple(data["starts"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"the table of boxes is damaged: {type(error).__name__}: {error}") from error
        table.check()
        return table

    def check(self) -> None:
        """Check that the columns fit each other and that every box is inside its tensor.

        Raises:
            ValueError: They do not.
        """
        if not len(self.names) == len(self.numbers) == len(self.starts):
            raise ValueError(
                f"the table of boxes is damaged: it has {len(self.names)} names, {len(self.numbers)} numbers and "
                f"{len(self.starts)} positions"
            )
        if any(not 0 <= number < len(self.boxes) for number in set(self.numbers)) or min(self.starts, default=0) < 0:
            raise ValueError("the table of boxes is damaged: a tensor has no box or a position below 0")
        for box in self.boxes:
            if not len(box.box.offset) == len(box.box.shape) == len(box.global_shape):
                raise ValueError(f"the table of boxes is damaged: {box} has parts with different dimensions")
            dimensions = zip(box.box.offset, box.box.shape, box.global_shape, strict=True)
            if box.item_bytes < 1 or any(at < 0 or n < 0 or at + n > whole for at, n, whole in dimensions):
                raise ValueError(f"the table of boxes is damaged: {box} is not a part of its tensor")


def packed(data: Mapping[str, Any]) -> bytes:
    """Return plain data as compressed JSON."""
    return zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 1)


def unpacked(data: bytes, most_bytes: int = 1 << 32) -> dict[str, Any]:
    """Return the plain data in compressed JSON.

    Raises:
        ValueError: The data is damaged, or has more than `most_bytes` without compression.
    """
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, most_bytes)
    except zlib.error as error:
        raise ValueError(f"the data is not compressed JSON: {error}") from error
    if unpacker.unconsumed_tail:
        raise ValueError(f"compressed JSON has more than {most_bytes} bytes")
    return json.loads(text)
