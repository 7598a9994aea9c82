"""Output of uv: progress and reasons."""

import pytest

from regroup.workers.environment.uv_output import UvProgress, reason_of


@pytest.mark.parametrize(
    ("line", "news"),
    [
        ("Resolved 12 packages in 1.20s", (None, "preparing 12 packages")),
        ("Downloading torch (181.3MiB)", (None, "downloading torch (181.3MiB)")),
        ("   Building spoon==1.0", (None, "building spoon==1.0")),
        ("Prepared 12 packages in 547ms", (None, "installing 12 packages")),
        ("Installed 12 packages in 0.29ms", (1.0, "installed 12 packages")),
        (" + spoon==1.0", None),
        ("", None),
        (None, None),
    ],
)
def test_progress_is_parsed_from_the_output_of_uv(line: str | None, news: tuple[float | None, str] | None) -> None:
    assert UvProgress().update(line, 0.0) == news


def test_a_silent_installation_repeats_its_activity() -> None:
    progress = UvProgress()
    assert progress.update(None, 9.0) is None
    assert progress.update(None, 10.0) == (None, "resolving requirements, after 10 s")
    assert progress.update("Downloading torch (181.3MiB)", 12.0) is not None
    assert progress.update(None, 21.0) is None
    assert progress.update(None, 22.0) == (None, "downloading torch (181.3MiB), after 22 s")


def test_a_reason_joins_an_error_with_its_causes() -> None:
    lines = [
        "Using Python 3.11.7 environment at: v1",
        "error: Failed to fetch: http://127.0.0.1:1/simple/spoon/",
        "  cause: client error (Connect)",
        "  cause: Connection refused (os error 111)",
    ]
    assert reason_of(lines, 2) == (
        "Failed to fetch: http://127.0.0.1:1/simple/spoon/: client error (Connect): Connection refused (os error 111)"
    )
    lines = [
        "error: No solution found when resolving dependencies",
        "  cause: Because all versions of spoon depend on flavour<2 and you require spoon, you require flavour<2.",
        "         And because you require flavour==2.0, your requirements are unsatisfiable.",
        "",
        "hint: Pre-releases are available for `flavour`",
    ]
    assert reason_of(lines, 1) == (
        "No solution found when resolving dependencies: Because all versions of spoon depend on flavour<2 and you "
        "require spoon, you require flavour<2. And because you require flavour==2.0, your requirements are "
        "unsatisfiable."
    )


def test_without_an_error_the_reason_is_the_last_line() -> None:
    assert reason_of(["one", "two", ""], 3) == "it ended with code 3 after 'two'"
    assert reason_of([], 3) == "code 3"
