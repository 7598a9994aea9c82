"""Random archives of code, most of them damaged: forbidden members, altered bytes, wrong checksums, torn ends."""

import gzip
import struct
import tarfile

from hypothesis import strategies as st

from tests.support.inputs.archives import FILE, FOLDER, LINK

_NAMES = st.text(alphabet="ab./\\\n\x00é", max_size=12) | st.text(max_size=6)
_KINDS = st.sampled_from([FILE, FILE, FOLDER, LINK, tarfile.LNKTYPE, tarfile.FIFOTYPE, b"S", b"L", b"x", b"7", b"Z"])


@st.composite
def _tars(draw: st.DrawFn) -> bytes:
    members = draw(st.lists(st.tuples(_NAMES, _KINDS, _NAMES), max_size=8))
    blocks = b""
    for name, kind, target in members:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        content = draw(st.binary(max_size=40))
        member.size = draw(st.sampled_from([len(content), 0, 10**6, 2**40]) if draw(st.booleans()) else st.just(0))
        format_ = draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
        blocks += member.tobuf(format_, errors="surrogatepass")
        blocks += content.ljust(-(-len(content) // 512) * 512, b"\0")
    data = bytearray(blocks + bytes(1024))
    for at, value in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=4)):
        data[at] = value
    for start in range(0, len(data) - 511, 512) if draw(st.booleans()) else ():
        data[start + 148 : start + 156] = b" " * 8
        data[start + 148 : start + 156] = struct.pack("8s", f"{sum(data[start : start + 512]):06o}\0 ".encode())
    return bytes(data)


@st.composite
def _compressed(draw: st.DrawFn) -> bytes:
    """Return one or two compressed parts, possibly torn or altered."""
    parts = draw(st.lists(_tars(), min_size=1, max_size=2))
    data = bytearray(b"".join(gzip.compress(part, 1, mtime=0) for part in parts))
    for at, value in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=2)):
        data[at] = value
    return bytes(data[: draw(st.integers(1, len(data)))]) if draw(st.booleans()) else bytes(data)


def damaged_archives() -> st.SearchStrategy[bytes]:
    """Return archives, plain or compressed, and other bytes. Few of them are valid."""
    return _tars() | _compressed() | st.binary(max_size=2000)
