"""A requirements file becomes lines of the spec, or an error names the invalid line."""

from pathlib import Path

import pytest

from regroup.api.cli.spec_input.requirements import read, with_requirements
from regroup.service.domain.errors import SpecError


def written(tmp_path: Path, text: str) -> Path:
    """Write a requirements file."""
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    return path


def test_comments_and_blank_lines_are_skipped_and_continued_lines_joined(tmp_path: Path) -> None:
    text = "# all of it\n\ntorch==2.13.0  # pinned\nlib[extra]>=1, \\\n  <2\nother @ https://host/x.whl#sha256=00\n"
    assert read(written(tmp_path, text)) == [
        "torch==2.13.0", "lib[extra]>=1,   <2", "other @ https://host/x.whl#sha256=00"
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["-r base.txt", "--index-url https://host", "-e .", "lib==1 --hash=sha256:00"])
def test_options_are_rejected_with_the_line(line: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        read(written(tmp_path, f"torch\n{line}\n"))
    (issue,) = raised.value.issues
    assert issue.value == line and "options of pip are not supported" in issue.message


def test_an_error_names_a_missing_or_empty_file(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.txt", written(tmp_path, "# nothing\n")):
        with pytest.raises(SpecError) as raised:
            read(path)
        assert raised.value.issues[0].value == str(path)


def test_the_option_replaces_the_requirements_of_the_spec(tmp_path: Path) -> None:
    spec = {"name": "job", "environment": {"base": "none", "requirements": ["other"]}}
    given = with_requirements(spec, written(tmp_path, "torch\n"), Path("/elsewhere"))
    assert given == {"name": "job", "environment": {"base": "none", "requirements": ["torch"]}}


def test_a_file_named_in_the_spec_is_relative_to_it(tmp_path: Path) -> None:
    written(tmp_path, "torch\n")
    spec = {"environment": {"base": "none", "requirements_file": "requirements.txt"}}
    assert with_requirements(spec, None, tmp_path) == {"environment": {"base": "none", "requirements": ["torch"]}}
    assert with_requirements({"name": "job"}, None, tmp_path) == {"name": "job"}
    with pytest.raises(SpecError, match="conflicts with requirements"):
        with_requirements({"environment": {"requirements": ["x"], "requirements_file": "y"}}, None, tmp_path)
