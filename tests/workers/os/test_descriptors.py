"""Descriptors that a thread owns while others close and open files."""

import os
from pathlib import Path

import pytest

from regroup.workers.os.descriptors import OwnDescriptors
from tests.workers.agent.open_descriptors import descriptors


def test_the_file_of_a_closed_number_stays_the_same(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("own")
    (tmp_path / "other").write_text("other")
    fd = os.open(tmp_path / "own", os.O_RDONLY)
    own = OwnDescriptors([fd])
    os.close(fd)
    assert os.open(tmp_path / "other", os.O_RDONLY) == fd, "the number names another file now"
    with own as (number,):
        assert os.read(number, 10) == b"own"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(number, 10)
    os.close(fd)


def test_nothing_leaks_if_the_thread_never_starts_or_a_descriptor_is_closed() -> None:
    before = descriptors()
    fd = os.memfd_create("file")
    own = OwnDescriptors([fd, fd])
    assert descriptors() == before + 3
    with pytest.raises(OSError, match="Bad file descriptor"):
        OwnDescriptors([fd, 1 << 20])
    del own
    os.close(fd)
    assert descriptors() == before
