"""Build the documentation site with Zensical, in strict mode: a broken link or anchor fails the build.

    python docs/build_site.py [FOLDER]      # build/docs if absent; the site is FOLDER/site/index.html

Pages link to source files relative to the repository, as code hosts expect it. The site has no such files. A link to
one becomes a link to `repo_url` of zensical.toml where that is set, and else the plain path.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "zensical.toml"
EXTRA_PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
}
"""Pages outside of docs/ → their place on the site."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(```.*?^```\n?)", re.MULTILINE | re.DOTALL)


def build(folder: Path) -> Path:
    """Build the site in a folder; return the folder of the HTML files.

    Raises:
        subprocess.CalledProcessError: a page, a link or an anchor is missing. Zensical prints which.
    """
    stage(folder)
    zensical = Path(sys.executable).parent / "zensical"
    subprocess.run([zensical, "build", "--strict", "--clean"], cwd=folder, check=True)
    return folder / "site"


def stage(folder: Path) -> None:
    """Copy the pages and the configuration to a folder, with links that hold on the site."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "source"
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("*.py", "generators", "__pycache__"))
    shutil.copy(CONFIG, folder)
    for page, place in EXTRA_PAGES.items():
        shutil.copy(ROOT / page, source / place)
    origins = {ROOT / page: place for page, place in EXTRA_PAGES.items()}
    origins |= {path: str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    for origin, place in origins.items():
        target = source / place
        target.write_text(_rewritten(origin, place, origins, source))


def _rewritten(origin: Path, place: str, origins: dict[Path, str], source: Path) -> str:
    """Return the text of a page with the links to other files as the site needs them."""
    repository = tomllib.loads(CONFIG.read_text())["project"].get("repo_url", "")
    up = "../" * place.count("/")

    def replace(match: re.Match[str]) -> str:
        is_image, text, link, anchor = match[1], match[2], match[3], match[4] or ""
        if not link or "://" in link or link.startswith("mailto:"):
            return match[0]
        file = (origin.parent / link).resolve()
        if file in origins:
            return f"{is_image}[{text}]({up}{origins[file]}{anchor})"
        if file.is_relative_to(ROOT / "docs") or not file.exists():
            return match[0] if origin.is_relative_to(ROOT / "docs") else f"{is_image}[{text}]({up}{link}{anchor})"
        path = str(file.relative_to(ROOT))
        if is_image:
            name = path.replace("/", "-")
            shutil.copy(file, source / name)
            return f"![{text}]({up}{name})"
        if repository:
            return f"[{text}]({repository}/blob/main/{path}{anchor})"
        return f"{text} (`{path}`)" if path not in text.strip("`") else text

    pieces = _FENCE.split(origin.read_text())
    return "".join(piece if piece.startswith("```") else _LINK.sub(replace, piece) for piece in pieces)


if __name__ == "__main__":
    print(f"built {build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / 'build' / 'docs').absolute())}/index.html")
