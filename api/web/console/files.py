"""The built files of the console, as responses need them: read, compressed and tagged once."""

import gzip
import hashlib
import mimetypes
import threading
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

FOLDER = Path(str(files("regroup"))) / "console"
"""Folder of the build: in a checkout a link to `console/dist`."""
INDEX = "index.html"
ASSETS = "assets/"
"""Folder of files whose names contain a digest of their content."""
_COMPRESSED = frozenset({".css", ".html", ".js", ".json", ".svg", ".txt"})
_TYPES = {".js": "text/javascript", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
"""Media types that the tables of some machines lack."""


@dataclass(frozen=True)
class ConsoleFile:
    """A file with what a response needs."""

    content: bytes
    compressed: bytes | None
    """The content in gzip; None for a format that is compressed already."""
    media_type: str
    etag: str

    @classmethod
    def of(cls, name: str, content: bytes) -> "ConsoleFile":
        """Return the file of a name and its content."""
        suffix = Path(name).suffix
        media_type = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        compressed = gzip.compress(content, 9, mtime=0) if suffix in _COMPRESSED else None
        return cls(content, compressed, media_type, f'W/"{hashlib.sha256(content).hexdigest()[:32]}"')


class ConsoleFiles:
    """The files of one folder. They stay in memory until the folder has another build."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._build: tuple[int, int] | None = None
        """Inode and time of the page that the known files belong to."""
        self._paths: dict[str, Path] = {}
        self._read: dict[tuple[str, str], ConsoleFile] = {}

    @property
    def is_built(self) -> bool:
        """True if there is a build."""
        return (self._folder / INDEX).is_file()

    def find(self, name: str) -> ConsoleFile | None:
        """Return the file with this name below the folder; None if the build has none. Reads the disk.

        Only names of the build are known, so no name leads out of its folder.
        """
        return self._find(name, "")

    def index(self, root_path: str) -> ConsoleFile | None:
        """Return the page, for a server below `root_path`; None if there is no build."""
        return self._find(INDEX, root_path)

    def _find(self, name: str, root_path: str) -> ConsoleFile | None:
        with self._lock:
            self._scan()
            found = self._read.get((name, root_path))
            if found is None and (path := self._paths.get(name)) is not None:
                content = path.read_bytes()
                if root_path:
                    content = content.replace(b'href="/console/"', f'href="{root_path}/console/"'.encode(), 1)
                found = self._read[name, root_path] = ConsoleFile.of(name, content)
            return found

    def _scan(self) -> None:
        """List the files again if there is another build."""
        try:
            status = (self._folder / INDEX).stat()
            build = (status.st_ino, status.st_mtime_ns)
        except OSError:
            build = None
        if build == self._build and build is not None:
            return
        self._build, self._read = build, {}
        folder = self._folder
        listed = [] if build is None else [path for path in folder.rglob("*") if path.is_file()]
        self._paths = {path.relative_to(folder).as_posix(): path for path in listed}
