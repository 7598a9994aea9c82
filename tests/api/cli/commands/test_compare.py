"""The commands that show jobs side by side."""

from regroup.api.cli.render.curves import draw_bars


def test_diff_shows_the_fields_that_differ(cli, spec) -> None:
    one = cli("submit", spec, "--set", "name=diff-one").out.strip()
    cli("submit", spec, "--set", "name=diff-two", "--set", "training.steps=7", "--set", "labels={team: a}")
    lines = cli("diff", "diff-one", "diff-two").out.splitlines()
    assert lines[0].split() == ["FIELD", "diff-one", "diff-two"]
    assert [line.split() for line in lines[1:]] == [
        ["labels.team", "-", "a"], ["name", "diff-one", "diff-two"], ["training.steps", "300", "7"],
    ]  # fmt: skip
    assert cli("diff", one, "diff-two", "--json").json["first"] == one
    assert cli("diff", one, "diff-one").out == "the specs are equal\n"
    missing = cli("diff", one, "no-such-job")
    assert missing.code == 4 and "no-such-job" in missing.err


def test_bars_show_the_range_of_the_values() -> None:
    assert draw_bars([3.0, 2.0, 1.0]) == "█▅▁" and draw_bars([1.0, 1.0]) == "▁▁" and draw_bars([]) == ""
