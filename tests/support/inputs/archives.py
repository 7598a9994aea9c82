"""Archives of code: valid ones, and ones that break a rule."""

import gzip
import io
import tarfile
from collections.abc import Iterable, Mapping

Member = tuple[str, bytes, str]
"""Name, tar's type, target of a link."""
FILE, FOLDER, LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """Return a plain archive of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def tar_of_members(members: Iterable[Member]) -> bytes:
    """Return a plain archive of these members; each file has three bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            member.size = 3 if kind == FILE else 0
            tar.addfile(member, io.BytesIO(b"abc"))
    return buffer.getvalue()


def tar_with_extended_header(**fields: str) -> bytes:
    """Return a plain archive of one empty file, with these fields in an extended header."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("x")
        member.pax_headers = fields
        tar.addfile(member)
    return buffer.getvalue()


def bomb(unpacked_bytes: int) -> bytes:
    """Return a compressed archive of one file of zeros: a thousandth of its unpacked size."""
    member = tarfile.TarInfo("zeros")
    member.size = unpacked_bytes
    pieces, rest = divmod(unpacked_bytes, 2**20)
    end = bytes(rest + -rest % 512 + 1024)
    return b"".join(
        [gzip.compress(member.tobuf(tarfile.GNU_FORMAT)), gzip.compress(bytes(2**20)) * pieces, gzip.compress(end)]
    )
