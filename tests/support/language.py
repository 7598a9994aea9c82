"""The phrase check: find texts that are not plain technical English.

`phrases.toml` holds the rules. `clean_paths.txt` lists the paths on which CI enforces them. Run it on any path:

    python -m tests.support.language --report service/controller docs/guides/queue.md
    python -m tests.support.language --summary service
    python -m tests.support.language --names service/controller
    python -m tests.support.language              # the enforced paths, as CI does
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from .language_names import names_of, replaced_words
from .language_texts import Text, texts_of

ROOT = Path(__file__).resolve().parents[2]
RULES_FILE = Path(__file__).with_name("phrases.toml")
CLEAN_FILE = Path(__file__).with_name("clean_paths.txt")
CLEAN_NAMES_FILE = Path(__file__).with_name("clean_names.txt")
_EXEMPT = ("tests/support/phrases.toml", "tests/test_language.py")  # files that quote the phrases to avoid
_SENTENCE = re.compile(r"\S.*?(?:[.?!:](?=\s|$)|$)")
_PARTICIPLE = re.compile(r"(ing|ed)$")
_IMPERATIVE_RULE = "D401"  # ruff knows verbs that are not in the imperative: Returns, Returning, Returned
_IMPERATIVE_HINT = "start with a verb in the imperative: Return, Check"


@dataclass(frozen=True)
class Phrase:
    """One rule of `phrases.toml`."""

    pattern: re.Pattern[str]
    hint: str
    bad: str
    good: str
    kinds: frozenset[str]
    """Kinds of text that the rule applies to; all if empty."""


@dataclass(frozen=True, order=True)
class Violation:
    """A text that breaks a rule."""

    path: str
    line: int
    kind: str
    text: str
    hint: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.kind}] “{self.text}” → {self.hint}"


@cache
def rules() -> dict[str, Any]:
    """Return the content of `phrases.toml`."""
    return tomllib.loads(RULES_FILE.read_text())


@cache
def phrases() -> tuple[Phrase, ...]:
    """Return the rules in the order of the file."""
    return tuple(
        Phrase(
            re.compile(rule["pattern"], re.I), rule["hint"], rule["bad"], rule["good"], frozenset(rule.get("kinds", ()))
        )
        for rule in rules()["phrase"]
    )


def check_files(paths: Iterable[Path]) -> list[Violation]:
    """Return every violation in these files, in order."""
    paths = list(paths)
    found = [violation for path in paths for violation in _check_file(path)]
    reported = {(violation.path, violation.line) for violation in found if violation.hint == _IMPERATIVE_HINT}
    moods = _moods([path for path in paths if path.suffix == ".py"])
    return sorted([*found, *(mood for mood in moods if (mood.path, mood.line) not in reported)])


def check_text(text: Text, path: str = "") -> Iterator[Violation]:
    """Yield the violations of one text."""
    joined = text.joined
    for phrase in phrases():
        if phrase.kinds and text.kind not in phrase.kinds:
            continue
        for match in phrase.pattern.finditer(joined):
            shown = match[0].strip()
            yield Violation(path, text.line_at(match.start()), text.kind, shown, phrase.hint)
    yield from _check_length(text, joined, path)
    word = re.match(r"[A-Za-z]+", joined)
    if text.is_function and word and word[0].lower() in rules()["docstrings"]["not_first"]:
        shown = " ".join(joined.split()[:4])
        yield Violation(path, text.lines[0][0], text.kind, shown, _IMPERATIVE_HINT)


def check_file_name(path: Path) -> Iterator[Violation]:
    """Yield a violation for each part of a path that is a gerund or a participle."""
    for part in (path.stem.removeprefix("test_"), *path.parts[:-1]):
        if _PARTICIPLE.search(part) and not _is_allowed(part):
            yield Violation(str(path), 1, "file-name", part, "name a file with a noun, or add it to `allowed`")


def check_subject(subject: str) -> Iterator[str]:
    """Yield what is wrong with the subject of a commit."""
    limit = rules()["limits"]["subject_characters"]
    if len(subject) > limit:
        yield f"{len(subject)} characters; at most {limit}"
    match = re.fullmatch(r"(?:[a-z0-9_./-]+(?:, [a-z0-9_./-]+)*): (\S+)( .*)?", subject)
    if match is None:
        yield "write `area: imperative`, for example `store: fix the order of events`"
    elif match[1].lower() in rules()["docstrings"]["not_first"] or re.search(r"[a-z](ed|ing)$", match[1]):
        yield f"start with a verb in the imperative, not with {match[1]!r}"
    for violation in check_text(Text("subject", ((1, subject),))):
        yield f"“{violation.text}” → {violation.hint}"


def check_names(paths: Iterable[Path]) -> list[Violation]:
    """Return every definition in these files whose name contains a replaced word, in order."""
    table = rules()["names"]
    found: list[Violation] = []
    for path in paths:
        for line, name in names_of(ROOT / path) if path.suffix == ".py" else ():
            if name not in table["allowed"]:
                words = replaced_words(name, table["words"])
                found += [Violation(str(path), line, "name", f"{name}: {word}", hint) for word, hint in words]
    return sorted(set(found))


def clean_files(listing: Path = CLEAN_FILE) -> list[Path]:
    """Return the files that must have no violation: those that `listing` names."""
    return project_files([line for line in listing.read_text().split("\n") if line and not line.startswith("#")])


def project_files(patterns: Sequence[str]) -> list[Path]:
    """Return the files of this project, relative to its root, that match a path, a folder or a glob.

    Raises:
        ValueError: a pattern matches no file.
    """
    patterns = [pattern.rstrip("/") for pattern in patterns]
    files = _all_files()
    for pattern in patterns:
        if not any(_matches(path, pattern) for path in files):
            raise ValueError(f"{pattern}: no file matches this pattern; correct it, relative to {ROOT}")
    return [path for path in files if any(_matches(path, pattern) for pattern in patterns)]


def subjects(base: str | None = None) -> list[tuple[str, str]]:
    """Return (commit, subject) of each commit after `base`; an archive without history has none."""
    base = base or rules()["history"]["base"]
    has_base = _git("merge-base", "--is-ancestor", base, "HEAD") is not None
    # A shallow clone does not have the base: there, the newest commit alone is checked.
    chosen = [f"{base}..HEAD"] if has_base else ["--max-count=1", "HEAD"]
    log = _git("log", "--no-merges", "--format=%h%x09%s", *chosen) or ""
    return [(commit, subject) for commit, subject in (line.split("\t", 1) for line in log.splitlines())]


def check_subjects() -> Iterator[Violation]:
    """Yield what is wrong with the subjects of the project's commits."""
    for commit, subject in subjects():
        for problem in check_subject(subject):
            yield Violation(f"commit {commit}", 1, "subject", subject, problem)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the violations of the chosen paths, or else of the project and its commits; return 1 if there is any."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.language", description="Find phrases to avoid.")
    parser.add_argument("paths", nargs="*", help="files, folders or globs; the enforced paths when left out")
    parser.add_argument("--report", action="store_true", help="print every violation (the default)")
    parser.add_argument("--summary", action="store_true", help="print the number of violations of each file and hint")
    parser.add_argument("--names", action="store_true", help="check names in code instead of texts")
    parser.add_argument("--message", type=Path, metavar="FILE", help="check the subject of the commit message in FILE")
    options = parser.parse_args(arguments)
    if options.message:
        problems = list(check_subject(options.message.read_text().partition("\n")[0]))
        print(*(f"commit subject: {problem}" for problem in problems), sep="\n", end="\n" if problems else "")
        return 1 if problems else 0
    chosen = project_files([_relative(path) for path in options.paths])
    if options.names:
        found = check_names(chosen or clean_files(CLEAN_NAMES_FILE))
    else:
        found = (
            check_files(chosen)
            if chosen
            else [*check_files(clean_files()), *check_names(clean_files(CLEAN_NAMES_FILE)), *check_subjects()]
        )
    if options.summary:
        for heading, key in (("file", "path"), ("hint", "hint")):
            print(f"violations by {heading}:")
            for name, count in Counter(getattr(violation, key) for violation in found).most_common():
                print(f"{count:6} {name}")
    else:
        print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} violations", file=sys.stderr)
    return 1 if found else 0


def _check_file(path: Path) -> Iterator[Violation]:
    yield from check_file_name(path)
    if str(path) not in _EXEMPT:
        for text in texts_of(ROOT / path):
            yield from check_text(text, str(path))


def _check_length(text: Text, joined: str, path: str) -> Iterator[Violation]:
    if text.kind == "test-name":
        limit = rules()["limits"]["test_name_characters"]
        if len(joined) + len("test_") > limit:
            yield Violation(path, text.lines[0][0], text.kind, joined, f"at most {limit} characters, `test_` included")
    elif text.kind in ("prose", "docstring", "comment"):
        limit = rules()["limits"]["sentence_words"]
        for sentence in _SENTENCE.finditer(joined):
            count = len(sentence[0].split())
            if count > limit:
                shown = " ".join(sentence[0].split()[:6]) + " …"
                hint = f"{count} words; split sentences of more than {limit}"
                yield Violation(path, text.line_at(sentence.start()), text.kind, shown, hint)


def _moods(paths: Sequence[Path]) -> Iterator[Violation]:
    """Yield docstrings that start with a verb which is not in the imperative, as ruff finds them."""
    if not paths:
        return
    # A fixture is a value for its tests, like a property.
    settings = ('lint.pydocstyle.convention="google"', 'lint.pydocstyle.property-decorators=["pytest.fixture"]')
    options = [text for setting in settings for text in ("--config", setting)]
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "check", "--isolated", "--no-cache", "--select", _IMPERATIVE_RULE, *options]
    command += ["--output-format", "json", "--", *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for item in json.loads(done.stdout):
        path = str(Path(item["filename"]).relative_to(ROOT))
        shown = item["message"].removeprefix("First line of docstring should be in imperative mood: ").strip('"')
        yield Violation(path, item["location"]["row"], "docstring", shown, _IMPERATIVE_HINT)


@cache
def _all_files() -> tuple[Path, ...]:
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard")
    if listed is None:
        hidden = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [str(path) for path in hidden if not any(part.startswith(".") for part in path.parts)]
    else:
        names = listed.splitlines()
    paths = (Path(name) for name in sorted(names))
    return tuple(path for path in paths if (ROOT / path).is_file() and not (ROOT / path).is_symlink())


def _matches(path: Path, pattern: str) -> bool:
    return pattern in (".", "**") or fnmatch(str(path), pattern) or str(path).startswith(f"{pattern}/")


def _relative(path: str) -> str:
    absolute = Path(path).absolute()
    return str(absolute.relative_to(ROOT)) if absolute.is_relative_to(ROOT) else path


def _is_allowed(name: str) -> bool:
    allowed = rules()["file_names"]["allowed"]
    return name in allowed or name.rpartition("_")[2] in allowed or name.rpartition("-")[2] in allowed


def _git(*arguments: str) -> str | None:
    """Return the output of a Git command, or None if it failed."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main())
