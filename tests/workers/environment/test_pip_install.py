"""pip as a process: what it installs, what it says, how it fails, and that nothing is left of it when it is stopped."""

import os
import subprocess
import threading
import uuid
from pathlib import Path

import pytest

from regroup.workers.environment.pip_install import Installer, InstallFailed, PipLines, hider
from regroup.workers.environment.venvs import Stopped
from tests.support.packages.tiny_packages import flavours, never_built, wheel
from tests.support.servers.regroup_server import called, eventually


def installer(tmp_path: Path, wheels: Path, said: list[str] | None = None, **options: object) -> Installer:
    """One that knows no index but a folder."""
    env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "SECRET": "s3cr3t"}
    env = {key: value for key, value in env.items() if key != "PYTHONPATH"}
    heard = said if said is not None else []
    hide = hider(["s3cr3t"])
    return Installer(env, hide, tmp_path / "pip.out", lambda fraction, message: heard.append(message), **options)  # type: ignore[arg-type]


def ask(venv: Path, expression: str) -> str:
    """What an expression is in the environment's Python."""
    done = subprocess.run(
        [venv / "bin" / "python", "-I", "-c", f"print({expression})"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_requirements_and_what_they_need_are_installed_and_nothing_of_the_platform_is_seen(tmp_path: Path) -> None:
    wheels = flavours(tmp_path / "wheels")
    wheel(wheels, "spoon", "1.0", {"spoon.py": ""}, requires=["flavour<2"])
    said: list[str] = []
    installer(tmp_path, wheels, said).make(tmp_path / "venv", ["spoon"], "none")
    assert ask(tmp_path / "venv", "__import__('flavour').VERSION, __import__('spoon').__name__") == "1.0 spoon"
    found = "[__import__('importlib.util').util.find_spec(name) for name in ('ray', 'pydantic', 'torch', 'regroup')]"
    assert ask(tmp_path / "venv", found) == "[None, None, None, None]"
    assert said[0] == "making a virtual environment"
    assert said[-1] in ("installing 0/2", "installing 1/2", "installing 2/2"), "how far pip was when it was looked at"
    assert "Successfully installed flavour-1.0 spoon-1.0" in (tmp_path / "pip.out").read_text()
    assert not (tmp_path / "venv" / "temporary").exists()


def test_the_platforms_packages_are_below_where_asked_for(tmp_path: Path) -> None:
    installer(tmp_path, flavours(tmp_path / "wheels")).make(tmp_path / "venv", ["flavour==2.0", "numpy"], "platform")
    import numpy

    assert ask(tmp_path / "venv", "__import__('flavour').VERSION") == "2.0"
    assert ask(tmp_path / "venv", "__import__('numpy').__file__") == numpy.__file__


def test_what_is_installed_wins_over_the_platforms(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheel(wheels, "structlog", "99.0", {"structlog.py": "VERSION = 'ours'\n"})
    installer(tmp_path, wheels).make(tmp_path / "venv", ["structlog==99.0"], "platform")
    assert ask(tmp_path / "venv", "__import__('structlog').VERSION") == "ours"


def test_a_failure_says_what_pip_said_last(tmp_path: Path) -> None:
    with pytest.raises(InstallFailed, match=r"No matching distribution found for flavour==3\.0") as raised:
        installer(tmp_path, flavours(tmp_path / "wheels")).make(tmp_path / "venv", ["flavour==3.0"], "none")
    assert any("from versions: 1.0, 2.0" in line for line in raised.value.lines)


def test_one_that_is_stopped_leaves_no_process_and_no_file_elsewhere(tmp_path: Path) -> None:
    title = f"building-{uuid.uuid4().hex}"
    endless = installer(tmp_path, never_built(tmp_path / "wheels", title))
    ended: list[BaseException] = []

    def make() -> None:
        try:
            endless.make(tmp_path / "venv", ["endless"], "none")
        except Stopped as error:
            ended.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    eventually(lambda: called(title), 60)
    endless.stop()
    thread.join(20)
    assert ended and not thread.is_alive()
    eventually(lambda: not called(title), 10)
    # What pip had unpacked goes with the environment.
    assert [path for path in (tmp_path / "venv" / "temporary").iterdir() if path.name.startswith("pip-")]


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    wheels = never_built(tmp_path / "wheels", f"building-{uuid.uuid4().hex}")
    with pytest.raises(InstallFailed, match="did not end within 3 s"):
        installer(tmp_path, wheels, timeout_s=3.0).make(tmp_path / "venv", ["endless"], "none")


def test_a_build_that_prints_a_secret_gives_nothing_away(tmp_path: Path) -> None:
    wheels = never_built(tmp_path / "wheels", "never-started")
    import tarfile

    with tarfile.open(wheels / "endless-1.0.tar.gz") as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (tmp_path / "source" / "endless-1.0" / "backend.py").write_text(
        "import os\nraise SystemExit('token ' + os.environ['SECRET'])\n"
    )
    with tarfile.open(wheels / "endless-1.0.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "source" / "endless-1.0", "endless-1.0")
    with pytest.raises(InstallFailed) as raised:
        installer(tmp_path, wheels).make(tmp_path / "venv", ["endless"], "none")
    told = "\n".join([str(raised.value), *raised.value.lines, (tmp_path / "pip.out").read_text()])
    assert "token ***" in told and "s3cr3t" not in told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Collecting torch==2.13.0", (None, "resolving torch==2.13.0 (1 found)")),
        (
            "  Downloading https://host/x/torch-2.13.0-cp311-linux.whl (190.1 MB)",
            (None, "downloading torch-2.13.0-cp311-linux.whl (190.1 MB)"),
        ),
        ("Building wheel for spoon (pyproject.toml): started", (None, "building spoon")),
        ("Requirement already satisfied: numpy", None),
        ("", None),
        (None, None),
    ],
)
def test_progress_is_read_from_what_pip_prints(
    line: str | None, told: tuple[float | None, str] | None, tmp_path: Path
) -> None:
    assert PipLines(tmp_path).told(line, 0.0) == told


def test_while_pip_installs_silently_what_is_there_is_counted(tmp_path: Path) -> None:
    lines = PipLines(tmp_path)
    assert lines.told("Installing collected packages: Some.Lib, other, last", 1.0) == (0.0, "installing 0/3")
    assert lines.told(None, 2.0) is None
    (tmp_path / "some_lib-1.0.dist-info").mkdir()
    (tmp_path / "not_ours-1.0.dist-info").mkdir()
    assert lines.told(None, 3.0) == (1 / 3, "installing 1/3")
    assert lines.told(None, 12.0) is None
    assert lines.told(None, 13.0) == (1 / 3, "installing 1/3, after 13 s")
    assert lines.told(None, 14.0) is None


def test_secrets_are_taken_out_in_whole_and_in_part() -> None:
    hide = hider(["https://robot:p%40ss@host/simple", "tok\nen-line", ""])
    assert hide("Looking in https://robot:p%40ss@host/simple") == "Looking in ***"
    assert hide("password p@ss of robot") == "password *** of ***"
    assert hide("en-line") == "***"
    assert hide("https://someone:else@host/x") == "https://***@host/x"
    assert hide("nothing") == "nothing"
