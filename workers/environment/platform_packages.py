"""The platform's packages in the environment of a job."""

import json
import shutil
import sysconfig
from pathlib import Path

_INSTALLER = "regroup"
"""Value in `INSTALLER` that marks the records of the platform's packages."""
_RECORDED = ("METADATA", "WHEEL", "direct_url.json")


def record(packages: Path) -> None:
    """Make the platform's packages visible to uv, as packages that are installed in `packages`.

    uv then keeps each of them that the requirements accept. It ignores packages on other paths, also those of
    `--system-site-packages`. A record lists no file but its own: an uninstallation never touches the platform.
    """
    for info in Path(sysconfig.get_path("purelib")).glob("*.dist-info"):
        record = packages / info.name
        record.mkdir()
        names = [name for name in _RECORDED if (info / name).exists()]
        for name in names:
            shutil.copyfile(info / name, record / name)
        (record / "INSTALLER").write_text(_INSTALLER)
        (record / "RECORD").write_text("".join(f"{info.name}/{name},,\n" for name in (*names, "INSTALLER", "RECORD")))


def expose(packages: Path) -> None:
    """Put the platform's packages on the path of the environment, in place of their records."""
    for installer in packages.glob("*.dist-info/INSTALLER"):
        if installer.read_text() == _INSTALLER:
            shutil.rmtree(installer.parent)
    # A venv made from a venv does not see what is in that. Last on the path: packages of the environment win.
    below = json.dumps(sysconfig.get_path("purelib"))
    (packages / "regroup-platform.pth").write_text(f"import site; site.addsitedir({below})\n")
