"""The output that `regroup run` shows, chosen with torchrun's options."""

import pytest

from regroup.api.live.output import RANK_0
from regroup.api.live.output_choice import (
    TEED_RANKS,
    OutputChoice,
    StreamChoice,
    choose_sources,
    parse_ranks,
    parse_streams,
)


def shown(ranks: int, per_node: int, tee: str = "0", redirects: str = "0", only: str = "") -> list[str]:
    """Return `RANK STREAM` for each stream, with `:` after the rank if its lines have a prefix."""
    choice = OutputChoice(parse_streams(tee), parse_streams(redirects), parse_ranks(only) if only else None)
    sources = choose_sources(choice, ranks, per_node)
    assert all(each.prefix in ("", f"[rank{each.rank}] ") for each in sources)
    return [f"{each.rank}{':' if each.prefix else ''} {each.stream}" for each in sources]


def test_rank_0_is_shown_by_default() -> None:
    assert choose_sources(OutputChoice(), 4, 4) == RANK_0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tee": "3"}, ["0: stdout", "0: stderr", "1: stdout", "1: stderr"]),
        ({"tee": "1"}, ["0: stdout", "0 stderr", "1: stdout"]),
        ({"tee": "1:2"}, ["0 stdout", "0 stderr", "1: stderr"]),
        ({"tee": "7:3"}, ["0 stdout", "0 stderr"]),
        ({"redirects": "3"}, []),
        ({"redirects": "1"}, ["0 stderr"]),
        ({"redirects": "0:3"}, []),
        ({"redirects": "1:3"}, ["0 stdout", "0 stderr"]),
        ({"redirects": "3", "tee": "0:1"}, ["0: stdout"]),
        ({"only": "1"}, ["1 stdout", "1 stderr"]),
        ({"only": "0,1", "redirects": "2"}, ["0: stdout", "1: stdout"]),
        ({"only": "0", "tee": "3"}, ["0: stdout", "0: stderr"]),
        ({"only": "1", "tee": "0:3"}, ["1 stdout", "1 stderr"]),
    ],
)
def test_streams_are_shown_as_under_torchrun(options: dict[str, str], expected: list[str]) -> None:
    assert shown(2, 2, **options) == expected


def test_ranks_are_numbered_on_their_nodes() -> None:
    assert shown(4, 2, only="1") == ["1: stdout", "1: stderr", "3: stdout", "3: stderr"]
    assert shown(4, 2, tee="0:1") == ["0: stdout", "0 stderr", "2: stdout"]


def test_the_number_of_ranks_is_bounded() -> None:
    assert len({line.split(":")[0] for line in shown(131_072, 8, tee="3")}) == TEED_RANKS


@pytest.mark.parametrize("text", ["4", "", "a:1", "0:9", "0:1,,1:1", ":", "-1:3", "0:1:2", "١:1", "9999999:1", " 3"])
def test_another_form_of_streams_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not (one of 0 \(none\)|RANK:NUMBER, for example)"):
        parse_streams(text)


@pytest.mark.parametrize("text", ["", "a", "0,", "-1", "0 1", "1" * 5000])
def test_another_form_of_ranks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rank; write numbers separated by commas, for example 0,1"):
        parse_ranks(text)


def test_a_choice_by_rank_leaves_the_others_as_they_are() -> None:
    assert parse_streams("0:1,1:3") == StreamChoice(by_rank={0: ("stdout",), 1: ("stdout", "stderr")})
    assert parse_streams("2").of(5) == ("stderr",)
