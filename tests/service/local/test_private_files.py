"""Private files, the state directory and the token, on a real file system."""

import os
import stat
import threading
from pathlib import Path

import pytest

from regroup.service.domain.errors import ConflictError
from regroup.service.local.api_token import ApiToken, ensure_token
from regroup.service.local.private_files import create_private, prepare_state_dir, write_private


@pytest.fixture(autouse=True)
def open_umask() -> object:
    """New files are readable by everyone, unless the code decides otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_private_and_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create_private(path, "first")
    create_private(path, "second")
    assert (path.read_text(), mode(path)) == ("first", 0o600)
    write_private(path, "third")
    assert (path.read_text(), mode(path)) == ("third", 0o600)
    assert os.listdir(tmp_path) == ["file"]


def test_of_servers_that_start_at_once_one_creates_the_token(tmp_path: Path) -> None:
    found: list[ApiToken] = []
    starts = threading.Barrier(8)

    def start() -> None:
        starts.wait()
        found.append(ensure_token(tmp_path / "api.token", create=True))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len({token.value for token in found}) == 1
    assert mode(tmp_path / "api.token") == 0o600 and os.listdir(tmp_path) == ["api.token"]


def test_the_token_is_random_and_stays(tmp_path: Path) -> None:
    one, other = (ensure_token(tmp_path / name, create=True) for name in ("one", "other"))
    assert one.value != other.value and len(one.value) >= 40
    assert ensure_token(tmp_path / "one", create=True) == one
    assert one.value not in repr(one)


@pytest.mark.parametrize(
    ("content", "permissions", "create", "message"),
    [
        ("t" * 43, 0o644, True, "is not private.*chmod 600"),
        ("t" * 43, 0o640, True, "is not private"),
        ("t" * 43, 0o604, False, "is not private"),
        ("", 0o600, True, "needs one line of at least 20"),
        ("t" * 43 + "\nsecond line", 0o600, True, "needs one line"),
        ("\u00fc" * 43, 0o600, False, "needs one line"),
        (None, 0o600, False, "cannot be read.*REGROUP_TOKEN_FILE"),
    ],
)
def test_an_unusable_token_file_is_refused_with_a_remedy(
    tmp_path: Path, content: str | None, permissions: int, create: bool, message: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
        path.chmod(permissions)
    with pytest.raises(ConflictError, match=message) as refused:
        ensure_token(path, create=create)
    assert "ttt" not in str(refused.value)


def test_a_mounted_secret_may_be_readable_by_the_group_of_its_pod(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t" * 43 + "\n")
    (tmp_path / "token").chmod(0o440)
    assert ensure_token(tmp_path / "token", create=False).value == "t" * 43


def test_a_new_state_directory_is_private(tmp_path: Path) -> None:
    prepare_state_dir(tmp_path / "a" / "state")
    assert mode(tmp_path / "a" / "state") == 0o700


def test_an_open_state_directory_is_made_private_with_its_files(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    prepare_state_dir(state)  # an empty folder
    assert mode(state) == 0o700
    state.chmod(0o755)
    for name in ("regroup.db", "regroup.db-wal", "server.json"):
        (state / name).write_text("x")
        (state / name).chmod(0o644)
    (state / "storage").mkdir(mode=0o755)
    (tmp_path / "elsewhere").write_text("x")
    (state / "link").symlink_to(tmp_path / "elsewhere")
    prepare_state_dir(state)
    assert {mode(path) & 0o077 for path in (state, *state.iterdir()) if not path.is_symlink()} == {0}
    assert mode(tmp_path / "elsewhere") & 0o077, "a link is not followed"


def test_open_files_in_a_private_state_directory_are_made_private_and_others_stay(tmp_path: Path) -> None:
    for name in ("regroup.db", "notes.txt"):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(0o644)
    prepare_state_dir(tmp_path)
    assert (mode(tmp_path / "regroup.db"), mode(tmp_path / "notes.txt")) == (0o600, 0o644)


def test_an_open_folder_of_something_else_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    (tmp_path / "home" / "notes.txt").write_text("x")
    (tmp_path / "home" / "storage").mkdir()
    with pytest.raises(ConflictError, match=r"mode 0755.*chmod 700 .*--state-dir"):
        prepare_state_dir(tmp_path / "home")
    assert mode(tmp_path / "home") == 0o755


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = Path("/usr")  # of root
    if os.geteuid() == 0:
        folder = tmp_path / "state"
        folder.mkdir(mode=0o700)
        os.chown(folder, 65534, 65534)
    with pytest.raises(ConflictError, match=rf"belongs to user {folder.stat().st_uid}.*--state-dir"):
        prepare_state_dir(folder)
