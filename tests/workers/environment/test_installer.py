"""Installation with uv: packages, output, failures, and the removal of all remains after a stop."""

import os
import subprocess
import tarfile
import threading
import uuid
from pathlib import Path

import pytest

from regroup.workers.environment.installer import Installer, InstallFailed
from regroup.workers.environment.uv_command import cache_of
from regroup.workers.environment.venvs import InstallStopped
from tests.support.packages.tiny_packages import flavours, never_built, wheel
from tests.support.servers.regroup_server import called, eventually


def installer(tmp_path: Path, wheels: Path, messages: list[str] | None = None, **options: object) -> Installer:
    """Return an installer whose only source of packages is a folder."""
    job = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull, "SECRET": "s3cr3t"}
    env = {**os.environ, **job}
    env = {key: value for key, value in env.items() if key != "PYTHONPATH"}
    received = messages if messages is not None else []

    def on_progress(fraction: float | None, message: str) -> None:
        received.append(message)

    def hide(line: str) -> str:
        return line.replace("s3cr3t", "***")

    return Installer(env, job.keys(), hide, tmp_path / "uv.out", on_progress, **options)  # type: ignore[arg-type]


def evaluate(venv: Path, expression: str) -> str:
    """Return the value of an expression in the environment's Python."""
    done = subprocess.run(
        [venv / "bin" / "python", "-I", "-c", f"print({expression})"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_requirements_are_installed_without_the_platforms_packages(tmp_path: Path) -> None:
    wheels = flavours(tmp_path / "wheels")
    wheel(wheels, "spoon", "1.0", {"spoon.py": ""}, requires=["flavour<2"])
    messages: list[str] = []
    installer(tmp_path, wheels, messages).install(tmp_path / "venv", ["spoon"], "none")
    assert evaluate(tmp_path / "venv", "__import__('flavour').VERSION, __import__('spoon').__name__") == "1.0 spoon"
    found = "[__import__('importlib.util').util.find_spec(name) for name in ('ray', 'pydantic', 'torch', 'regroup')]"
    assert evaluate(tmp_path / "venv", found) == "[None, None, None, None]"
    assert messages[0] == "creating a virtual environment" and messages[-1] == "installed 2 packages"
    assert "+ spoon==1.0" in (tmp_path / "uv.out").read_text()
    assert not (tmp_path / "venv" / "temporary").exists()


def test_the_platforms_packages_satisfy_requirements(tmp_path: Path) -> None:
    """Offer no numpy, so that uv must use the platform's."""
    venv, wheels = tmp_path / "venv", flavours(tmp_path / "wheels")
    wheel(wheels, "fork", "1.0", {"fork.py": ""}, requires=["numpy", "structlog>1"])
    installer(tmp_path, wheels).install(venv, ["flavour==2.0", "fork"], "platform")
    import numpy

    assert evaluate(venv, "__import__('flavour').VERSION") == "2.0"
    assert evaluate(venv, "__import__('numpy').__file__") == numpy.__file__
    version = "__import__('importlib.metadata').metadata.version('numpy')"
    assert evaluate(venv, version) == numpy.__version__
    installed = {path.name for path in (venv / "lib").glob("python3*/site-packages/*.dist-info")}
    assert installed == {"flavour-2.0.dist-info", "fork-1.0.dist-info"}


def test_an_installed_package_wins_over_the_platforms(tmp_path: Path) -> None:
    import structlog

    wheels, before = tmp_path / "wheels", _files(Path(structlog.__file__).parent)
    wheel(wheels, "structlog", "99.0", {"structlog.py": "VERSION = 'own'\n"})
    installer(tmp_path, wheels).install(tmp_path / "venv", ["structlog==99.0"], "platform")
    assert evaluate(tmp_path / "venv", "__import__('structlog').VERSION") == "own"
    assert _files(Path(structlog.__file__).parent) == before, (
        "uv has uninstalled the record, not the platform's package"
    )


def test_environments_share_the_files_of_the_cache(tmp_path: Path) -> None:
    wheels = flavours(tmp_path / "wheels")
    for name in ("one", "two"):
        installer(tmp_path, wheels).install(tmp_path / name, ["flavour==1.0"], "none")
    one, two = (next((tmp_path / name).glob("lib/python3*/site-packages/flavour.py")) for name in ("one", "two"))
    assert one.samefile(two)


def test_a_failure_contains_the_reason_of_the_resolver(tmp_path: Path) -> None:
    with pytest.raises(InstallFailed) as raised:
        installer(tmp_path, flavours(tmp_path / "wheels")).install(tmp_path / "venv", ["flavour==3.0"], "none")
    assert str(raised.value) == (
        "No solution found when resolving dependencies: Because there is no version of flavour==3.0 and you require "
        "flavour==3.0, we can conclude that your requirements are unsatisfiable."
    )
    assert any("flavour==3.0" in line for line in raised.value.lines)


def test_settings_without_a_counterpart_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_USE_FEATURE", "something")
    installer(tmp_path, flavours(tmp_path / "wheels")).install(tmp_path / "venv", ["flavour"], "none")
    assert "no counterpart for pip's setting use-feature" in (tmp_path / "uv.out").read_text()


def test_a_configuration_file_in_a_parent_folder_is_not_read(tmp_path: Path) -> None:
    """Put a file where another user could write it, as in /tmp."""
    for name in ("uv.toml", "pyproject.toml"):
        (tmp_path / name).write_text("this is not TOML")
    installer(tmp_path, flavours(tmp_path / "wheels")).install(tmp_path / "venv", ["flavour"], "none")
    assert evaluate(tmp_path / "venv", "__import__('flavour').VERSION") == "2.0"


def test_a_stopped_installation_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    title = f"building-{uuid.uuid4().hex}"
    endless = installer(tmp_path, never_built(tmp_path / "wheels", title))
    errors: list[BaseException] = []

    def install() -> None:
        try:
            endless.install(tmp_path / "venv", ["endless"], "none")
        except InstallStopped as error:
            errors.append(error)

    thread = threading.Thread(target=install)
    thread.start()
    eventually(lambda: called(title), 60)
    assert list((cache_of(tmp_path) / "builds-v0").iterdir())
    endless.stop()
    thread.join(20)
    assert errors and not thread.is_alive()
    eventually(lambda: not called(title), 10)
    assert not list((cache_of(tmp_path) / "builds-v0").iterdir())
    # The files of the build are removed with the environment.
    assert {path.name for path in tmp_path.iterdir()} == {"venv", "wheels", "uv.out", cache_of(tmp_path).name}


def test_an_installation_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    wheels = never_built(tmp_path / "wheels", f"building-{uuid.uuid4().hex}")
    with pytest.raises(InstallFailed, match="did not end within 3 s"):
        installer(tmp_path, wheels, timeout_s=3.0).install(tmp_path / "venv", ["endless"], "none")


def test_a_build_that_prints_a_secret_reveals_nothing(tmp_path: Path) -> None:
    wheels = never_built(tmp_path / "wheels", "never-started")
    with tarfile.open(wheels / "endless-1.0.tar.gz") as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (tmp_path / "source" / "endless-1.0" / "backend.py").write_text(
        "import os\nraise SystemExit('token ' + os.environ['SECRET'])\n"
    )
    with tarfile.open(wheels / "endless-1.0.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "source" / "endless-1.0", "endless-1.0")
    with pytest.raises(InstallFailed) as raised:
        installer(tmp_path, wheels).install(tmp_path / "venv", ["endless"], "none")
    shown = "\n".join([str(raised.value), *raised.value.lines, (tmp_path / "uv.out").read_text()])
    assert "token ***" in shown and "s3cr3t" not in shown


def test_an_environment_for_other_users_is_readable_and_has_files_of_its_own(tmp_path: Path) -> None:
    wheels, before = flavours(tmp_path / "wheels"), os.umask(0o077)  # the mask of an agent
    try:
        for name in ("one", "two"):
            installer(tmp_path, wheels, is_shared=True).install(tmp_path / name, ["flavour==1.0"], "platform")
    finally:
        os.umask(before)
    found = [path for path in (tmp_path / "one").rglob("*") if path.name != "requirements.txt"]
    needed = {path: 0o005 if path.is_dir() else 0o004 for path in found if not path.is_symlink()}
    assert [path for path, mode in needed.items() if path.stat().st_mode & mode != mode] == []
    one, two = (next((tmp_path / name).glob("lib/python3*/site-packages/flavour.py")) for name in ("one", "two"))
    assert not one.samefile(two), "no file is that of the cache"
    assert cache_of(tmp_path).stat().st_mode & 0o077 == 0, "the cache has the packages of all jobs"


def test_an_environment_for_other_users_has_no_package_that_must_be_built(tmp_path: Path) -> None:
    title = f"building-{uuid.uuid4().hex}"
    wheels = never_built(tmp_path / "wheels", title)
    with pytest.raises(InstallFailed, match="endless"):
        installer(tmp_path, wheels, is_shared=True).install(tmp_path / "venv", ["endless"], "none")
    assert not called(title)


def _files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*.py")} | {
        str(path) for path in folder.parent.glob(f"{folder.name}-*.dist-info/*")
    }
