"""Every finished checkpoint loads after any order of saves, removals and crashes, and nothing unused remains."""

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from regroup.workers.agent.checkpoints import folders
from regroup.workers.agent.checkpoints.saver import _publish
from regroup.workers.contract.checkpoint_manifest import MANIFEST, PIECES, REMOVED, FileChunks, Pieces, beside
from regroup.workers.storage import fsspec_storage
from regroup.workers.storage.fsspec_storage import StorageError, StorageUnavailable
from regroup.workers.storage.parallel_write import Draft, ParallelWrite

NAMES = ("__0_0.distcp", "__1_0.distcp", "__2_0.distcp")


class Crash(Exception):
    """The process ended here."""


@contextmanager
def crash_after(calls: int | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Raise `Crash` in place of a change of the storage, after some changes; None: never."""
    left = calls

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left is not None:
                if left == 0:
                    raise Crash
                left -= 1
            return change(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ("write_bytes", "remove_file", "remove_files", "remove"):
            patch.setattr(fsspec_storage, name, counted(getattr(fsspec_storage, name)))
        try:
            yield
        except (Crash, StorageUnavailable) as error:
            if not isinstance(error, Crash) and not isinstance(error.__cause__, Crash):
                raise


class Retention(RuleBasedStateMachine):
    """Checkpoints of three files. Each save uses the files of the newest checkpoint that have not changed."""

    @initialize()
    def begin(self) -> None:
        self._folder = TemporaryDirectory()
        self._root = Path(self._folder.name) / "checkpoints"
        self._root.mkdir()
        self._step = 0
        self._values = dict.fromkeys(NAMES, 0)
        self._late: list[Callable[[], None]] = []
        """Ends of saves whose supervisor has gone: the agent completes them later."""
        self._expected: dict[str, dict[str, int]] = {}
        """Finished checkpoint → its values."""
        self._patch = pytest.MonkeyPatch()

    def teardown(self) -> None:
        self._patch.undo()
        self._folder.cleanup()

    @rule(changed=st.sets(st.sampled_from(NAMES)), crash=st.none() | st.integers(0, 4), is_late=st.booleans())
    def save(self, changed: set[str], crash: int | None, is_late: bool) -> None:
        self._step += 1
        values = {name: self._step if name in changed else value for name, value in self._values.items()}
        base = max(self._finished(), default="", key=lambda name: int(name.split(".")[0].removeprefix("step-")))
        uri = str(self._root / f"step-{self._step}.gen-1")
        former = json.loads((self._root / base / MANIFEST).read_text()) if base else {"files": [], "values": {}}
        places = {Path(entry["name"]).name: entry for entry in former["files"]}
        files: list[dict[str, Any]] = []
        new: list[Draft] = []
        for name, value in values.items():
            if former["values"].get(name) == value:
                files.append({**places[name], "name": beside(places[name]["name"], base)})
            else:
                data = f"{name} {value}".encode()
                new.append(Draft(name, len(data), lambda start, into, data=data: _fill(into, data[start:])))
                files.append({"name": name, "size_bytes": len(data), "crc32": zlib.crc32(data)})
        manifest = {"step": self._step, "generation": 1, "files": files, "values": values}

        def finish() -> None:
            bases = {str(self._root / base)} if any(entry["name"].startswith("../") for entry in files) else set()
            try:
                if _publish(uri, manifest, bases):
                    return
            except StorageError:
                return
            self._expected[Path(uri).name] = values

        with crash_after(crash, self._patch):
            ParallelWrite(uri, new).run()
            packed = Pieces({entry["name"]: FileChunks(1, (0,)) for entry in files}, ()).packed()
            fsspec_storage.write_bytes(f"{uri}/{PIECES}", packed)
            if is_late:
                self._late.append(finish)
            else:
                finish()
                self._values = values

    @precondition(lambda self: self._late)
    @rule()
    def complete_late(self) -> None:
        self._late.pop(0)()

    @precondition(lambda self: self._finished())
    @rule(data=st.data(), crash=st.none() | st.integers(0, 6))
    def remove(self, data: st.DataObject, crash: int | None) -> None:
        name = data.draw(st.sampled_from(sorted(self._finished())))
        self._expected.pop(name, None)
        with crash_after(crash, self._patch):
            folders.remove_checkpoint(str(self._root / name))
        if (self._root / name / MANIFEST).exists():  # the crash came first
            self._expected[name] = json.loads((self._root / name / MANIFEST).read_text())["values"]

    @rule(crash=st.none() | st.integers(0, 6))
    def remove_abandoned(self, crash: int | None) -> None:
        if self._late:
            return  # the node of that save reports that it writes
        with crash_after(crash, self._patch):
            for uri in folders.scan_folders(str(self._root), ()).unfinished:
                folders.remove_checkpoint(uri)

    @invariant()
    def each_checkpoint_loads(self) -> None:
        assert set(self._finished()) >= set(self._expected), "none has vanished"
        for name in self._finished():
            manifest = json.loads((self._root / name / MANIFEST).read_text())
            for entry in manifest["files"]:
                data = (self._root / name / entry["name"]).read_bytes()
                assert data == f"{Path(entry['name']).name} {manifest['values'][Path(entry['name']).name]}".encode()

    @invariant()
    def nothing_unused_remains_after_a_removal(self) -> None:
        if self._late:
            return
        folders.sweep(str(self._root))
        used = {
            (self._root / name / entry["name"]).resolve()
            for name in self._finished()
            for entry in json.loads((self._root / name / MANIFEST).read_text())["files"]
        }
        for mark in self._root.glob(f"*/{REMOVED}"):
            rest = {path.resolve() for path in mark.parent.iterdir() if path.name not in (REMOVED, MANIFEST)}
            assert rest <= used or (mark.parent / MANIFEST).exists(), mark.parent

    def _finished(self) -> list[str]:
        return [path.parent.name for path in self._root.glob(f"*/{MANIFEST}")] if hasattr(self, "_root") else []


def _fill(into: memoryview, data: bytes) -> None:
    into[:] = data[: len(into)]


TestRetention = Retention.TestCase
TestRetention.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def test_a_damaged_manifest_still_protects_its_files(tmp_path: Path) -> None:
    older, newer = tmp_path / "step-1.gen-1", tmp_path / "step-2.gen-1"
    for folder in (older, newer):
        folder.mkdir()
        (folder / "__0_0.distcp").write_bytes(b"state")
    (older / "__1_0.distcp").write_bytes(b"state")
    entry = {"name": "__0_0.distcp", "size_bytes": 5, "crc32": zlib.crc32(b"state")}
    (older / MANIFEST).write_text(json.dumps({"files": [entry]}))
    (newer / MANIFEST).write_text("{")
    (newer / PIECES).write_bytes(Pieces({"../step-1.gen-1/__0_0.distcp": FileChunks(5, (0,))}, ()).packed())
    folders.remove_checkpoint(str(older))
    assert sorted(path.name for path in older.iterdir()) == ["__0_0.distcp", REMOVED]
    (newer / PIECES).unlink()
    folders.sweep(str(tmp_path))
    assert not older.exists(), "it cannot be repaired without the list of its pieces"


def test_a_removed_checkpoint_is_neither_finished_nor_unfinished(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        (tmp_path / f"step-{step}.gen-1").mkdir()
    (tmp_path / "step-1.gen-1" / REMOVED).write_text("{}")
    (tmp_path / "step-2.gen-1" / MANIFEST).write_text('{"step": 2}')
    found = folders.scan_folders(str(tmp_path), ())
    assert [item["step"] for item in found.finished] == [2]
    assert [Path(uri).name for uri in found.unfinished] == ["step-3.gen-1"]
