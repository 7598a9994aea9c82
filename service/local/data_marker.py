"""A file that marks a folder of regroup's own data: the state directory, durable storage, archives of code.

A client leaves such folders out of the archive of a working directory. Otherwise each job's archive would contain the
checkpoints and archives of all jobs before it.
"""

import contextlib
from pathlib import Path
from urllib.parse import urlsplit

MARKER = ".regroup-data"
_TEXT = "regroup keeps data here. Archives of code (--working-dir) leave this folder out.\n"


def mark_data_folders(state_dir: Path, *uris: str) -> None:
    """Mark the state directory, and the storages of a server that are folders of this machine.

    A folder that cannot be written is not marked: the server reports it where it needs it.
    """
    for folder in (state_dir, *(local_folder(uri) for uri in uris)):
        if folder is not None:
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / MARKER).write_text(_TEXT)


def is_data_folder(folder: Path) -> bool:
    """Return whether a folder has the mark."""
    return (folder / MARKER).is_file()


def local_folder(uri: str) -> Path | None:
    """Return the folder that a storage URI names on this machine; None for object storage."""
    parts = urlsplit(uri)
    return Path(parts.path) if parts.scheme in ("", "file") and parts.path.startswith("/") else None
