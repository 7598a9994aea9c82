"""The files of a build: found by their names only, and read again after another build."""

import gzip
import os
from pathlib import Path

import pytest

from regroup.api.web.console.files import ConsoleFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A build with a file outside of it."""
    (tmp_path / "secret.txt").write_text("secret")
    built = tmp_path / "dist"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text('<base href="/console/">')
    (built / "assets" / "index-1.js").write_text("let a = 1;" * 100)
    (built / "assets" / "font-1.woff2").write_bytes(b"\x00\x01")
    return built


def test_a_file_has_its_type_and_is_compressed_if_that_helps(folder: Path) -> None:
    known = ConsoleFiles(folder)
    script, font = known.find("assets/index-1.js"), known.find("assets/font-1.woff2")
    assert script is not None and font is not None
    assert (script.media_type, font.media_type, font.compressed) == ("text/javascript", "font/woff2", None)
    assert script.compressed is not None and len(script.compressed) < len(script.content)
    assert gzip.decompress(script.compressed) == script.content
    assert script.etag != font.etag and known.find("assets/index-1.js") is script


@pytest.mark.parametrize(
    "name", ["../secret.txt", "assets/../../secret.txt", "/etc/passwd", "assets", "", ".", "..", "assets\\index-1.js"]
)
def test_only_names_of_the_build_are_found(folder: Path, name: str) -> None:
    known = ConsoleFiles(folder)
    assert known.find("assets/index-1.js") is not None
    assert known.find(name) is None and known.find(str(folder / "index.html")) is None


def test_another_build_is_read(folder: Path) -> None:
    known = ConsoleFiles(folder)
    before = known.index("")
    (folder / "assets" / "index-1.js").rename(folder / "assets" / "index-2.js")
    (folder / "index.html").write_text('<base href="/console/"><p>')
    os.utime(folder / "index.html", ns=(1, 1))
    after = known.index("")
    assert before is not None and after is not None and before.etag != after.etag
    assert known.find("assets/index-1.js") is None and known.find("assets/index-2.js") is not None
    (folder / "index.html").unlink()
    assert known.index("") is None and known.find("assets/index-2.js") is None and not known.is_built


def test_the_page_names_the_path_of_the_server(folder: Path) -> None:
    known = ConsoleFiles(folder)
    below, above = known.index("/train"), known.index("")
    assert below is not None and above is not None
    assert (below.content, above.content) == (b'<base href="/train/console/">', b'<base href="/console/">')
