"""Texts that a person reads are plain technical English, and so are the subjects of commits."""

from pathlib import Path

import pytest

from tests.support import language
from tests.support.language import Phrase, check_file_name, check_files, check_subject, check_text, clean_files, phrases
from tests.support.language_names import names_of, replaced_words
from tests.support.language_texts import Text, texts_of


def shown(text: Text) -> list[str]:
    return [violation.text for violation in check_text(text)]


# ------------------------------------------------------------------------------------------------ this project


def test_enforced_paths_have_no_phrase_to_avoid() -> None:
    assert "\n".join(map(str, check_files(clean_files()))) == ""


def test_enforced_paths_define_no_name_with_a_replaced_word() -> None:
    assert "\n".join(map(str, language.check_names(clean_files(language.CLEAN_NAMES_FILE)))) == ""


def test_subjects_of_commits_name_an_area_and_start_with_an_imperative() -> None:
    assert "\n".join(map(str, language.check_subjects())) == ""


def test_the_check_of_the_project_includes_its_commits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(language, "clean_files", lambda *_: [])
    monkeypatch.setattr(language, "subjects", lambda: [("1a2b3c4d", "store: fix it"), ("5e6f7a8b", "Fixed the order")])
    assert language.main([]) == 1
    shown = capsys.readouterr().out
    assert "commit 5e6f7a8b" in shown and "1a2b3c4d" not in shown


# ------------------------------------------------------------------------------------------------ the rules


@pytest.mark.parametrize("phrase", phrases(), ids=lambda phrase: phrase.bad)
def test_each_rule_matches_its_bad_example(phrase: Phrase) -> None:
    kinds = phrase.kinds or {"prose", "heading", "docstring", "comment", "string", "test-name", "subject"}
    for kind in kinds:
        hints = {violation.hint for violation in check_text(Text(kind, ((1, phrase.bad),)))}
        assert phrase.hint in hints, kind


@pytest.mark.parametrize("phrase", phrases(), ids=lambda phrase: phrase.good)
def test_no_rule_matches_a_good_example(phrase: Phrase) -> None:
    for kind in phrase.kinds or {"prose", "string"}:
        assert shown(Text(kind, ((1, phrase.good),))) == []


def test_phrases_are_found_across_lines_and_reported_on_their_first_line() -> None:
    text = Text(
        "docstring", ((7, "The agent stops the rank."), (8, ""), (9, "A rank that stands"), (10, "still is killed."))
    )
    (found,) = check_text(text, "workers/agent.py")
    assert (found.path, found.line, found.text) == ("workers/agent.py", 9, "stands still")


def test_code_spans_are_not_searched() -> None:
    assert shown(Text("prose", ((1, "Call `whoever()`. A node named `x` is told."),))) == ["told"]


def test_long_sentences_are_reported_with_their_length() -> None:
    words = " ".join(["word"] * 31)
    (found,) = check_text(Text("prose", ((1, f"{words}."),)))
    assert found.hint.startswith("31 words")
    assert shown(Text("prose", ((1, f"Short. {words[5:]}."),))) == []


def test_long_test_names_are_reported() -> None:
    assert shown(Text("test-name", ((1, "a" * 75),))) == []
    assert len(shown(Text("test-name", ((1, "a" * 76),)))) == 1


@pytest.mark.parametrize(
    ("docstring", "is_imperative"),
    [("Return the job.", True), ("The job.", False), ("Whether it ended.", False), ("Ranks of a node.", False)],
)
def test_docstrings_of_functions_start_with_an_imperative(docstring: str, is_imperative: bool) -> None:
    assert (shown(Text("docstring", ((1, docstring),), is_function=True)) == []) is is_imperative


@pytest.mark.parametrize(
    ("path", "is_noun"),
    [
        ("service/controller/drain.py", True),
        ("service/draining.py", False),
        ("tests/service/test_leaving.py", False),
        ("tests/workers/test_training_state.py", True),
        ("docs/guides/troubleshooting.md", True),
        ("service/moved/plan.py", False),
    ],
)
def test_file_names_are_nouns(path: str, is_noun: bool) -> None:
    assert (list(check_file_name(Path(path))) == []) is is_noun


@pytest.mark.parametrize(
    ("subject", "is_good"),
    [
        ("store: fix the order of events", True),
        ("service/store, api: rename allocations", True),
        ("Fix the order of events", False),
        ("store: fixed the order of events", False),
        ("store: the order of events", False),
        ("store: let go of nodes that nobody needs", False),
        (f"store: fix {'x' * 62}", False),
    ],
)
def test_commit_subjects_have_an_area_and_an_imperative(subject: str, is_good: bool) -> None:
    assert (list(check_subject(subject)) == []) is is_good


def test_replaced_words_are_found_in_definitions_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("import os as told\nclass Wish:\n    def look_at(self, blow):\n        self._rung = take = blow\n")
    names = [name for _, name in sorted(names_of(path))]
    assert names == ["told", "Wish", "blow", "look_at", "self", "_rung", "take"]
    words = language.rules()["names"]["words"]
    found = [word for name in names for word, _ in replaced_words(name, words)]
    assert found == ["told", "wish", "blow", "look", "rung", "take"]


# ------------------------------------------------------------------------------------------------ texts of a file

PYTHON = '''
"""Module of a job."""
LIMIT = 3
"""Number of ranks."""
# A comment of
# two lines.
x = 1  # behind code

class Job:
    @property
    def name(self) -> str:
        """Name of the job."""
        return f"job {self} has no name"

def test_a_job_ends() -> None:
    """Run a job."""
    raise ValueError("the job " "has no rank")
'''

MARKDOWN = """# Start a job

A [job](docs/job.md) of
two lines.

- one item
- another item

| name | meaning |
|---|---|
| `job` | a spec |

```yaml
steps: 3  # number of steps
```
"""


def test_texts_of_python_are_docstrings_comments_strings_and_test_names(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(PYTHON)
    found = {(text.kind, text.joined, text.is_function) for text in texts_of(path)}
    assert found == {
        ("docstring", "Module of a job.", False),
        ("docstring", "Number of ranks.", False),
        ("comment", "A comment of two lines.", False),
        ("comment", "behind code", False),
        ("docstring", "Name of the job.", False),
        ("string", "job {} has no name", False),
        ("test-name", "a job ends", False),
        ("docstring", "Run a job.", True),
        ("string", "the job has no rank", False),
    }


def test_texts_of_markdown_are_headings_paragraphs_items_cells_and_comments_in_code(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(MARKDOWN)
    assert [(text.kind, text.joined) for text in texts_of(path)] == [
        ("heading", "Start a job"),
        ("prose", "A job of two lines."),
        ("prose", "one item"),
        ("prose", "another item"),
        ("prose", "name"),
        ("prose", "meaning"),
        ("prose", "CODE_"),
        ("prose", "a spec"),
        ("comment", "number of steps"),
    ]
