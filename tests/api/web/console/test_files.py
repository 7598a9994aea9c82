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
    files = ConsoleFiles(folder)
    script, font = files.find("assets/index-1.js"), files.find("assets/font-1.woff2")
    assert script is not None and font is not None
    assert (script.media_type, font.media_type, font.compressed) == ("text/javascript", "font/woff2", None)
    assert script.compressed is not None and len(script.compressed) < len(script.content)
    assert gzip.decompress(script.compressed) == script.content
    assert script.etag != font.etag and files.find("assets/index-1.js") is script


@pytest.mark.parametrize(
    "name", ["../secret.txt", "assets/../../secret.txt", "/etc/passwd", "assets", "", ".", "..", "assets\\index-1.js"]
)
def test_only_names_of_the_build_are_found(folder: Path, name: str) -> None:
    files = ConsoleFiles(folder)
    assert files.find("assets/index-1.js") is not None
    assert files.find(name) is None and files.find(str(folder / "index.html")) is None


def test_another_build_is_read(folder: Path) -> None:
    files = ConsoleFiles(folder)
    before = files.index("")
    (folder / "assets" / "index-1.js").rename(folder / "assets" / "index-2.js")
    (folder / "index.html").write_text('<base href="/console/"><p>')
    os.utime(folder / "index.html", ns=(1, 1))
    after = files.index("")
    assert before is not None and after is not None and before.etag != after.etag
    assert files.find("assets/index-1.js") is None and files.find("assets/index-2.js") is not None
    (folder / "index.html").unlink()
    assert files.index("") is None and files.find("assets/index-2.js") is None and not files.is_built


def test_the_page_names_the_path_of_the_server(folder: Path) -> None:
    files = ConsoleFiles(folder)
    below, above = files.index("/train"), files.index("")
    assert below is not None and above is not None
    assert (below.content, above.content) == (b'<base href="/train/console/">', b'<base href="/console/">')
