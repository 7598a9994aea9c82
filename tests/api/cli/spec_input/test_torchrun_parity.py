"""torchrun's own parser: it knows the same options, and reads a command line in the same way."""

import argparse
import contextlib
import io
import re
import string
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch.distributed import run as torchrun
from torch.distributed.argparse_util import check_env, env

from regroup.api.cli.spec_input.torchrun_options import (
    OPTIONS,
    OUTPUT_OPTIONS,
    CommandLine,
    TorchrunOption,
    read_command_line,
)
from regroup.service.domain.errors import SpecError
from tests.support.inputs.fuzz import fuzz_settings

MAPPED = {"nnodes", "nproc-per-node", "max-restarts", "module", "no-python", "role", *OUTPUT_OPTIONS}


def actions_of_torchrun() -> Mapping[str, argparse.Action]:
    """Return torchrun's options by their longest name with hyphens."""
    parser = torchrun.get_args_parser()
    found = [action for action in parser._actions if action.option_strings and action.dest != "help"]
    return {action.dest.replace("_", "-"): action for action in found}


def test_every_option_of_torchrun_is_used_or_ignored_for_a_reason() -> None:
    theirs, ours = actions_of_torchrun(), {option.name: option for option in OPTIONS}
    assert theirs.keys() == ours.keys()
    assert {option.name for option in OPTIONS if not option.ignored_because} == MAPPED
    for name, action in theirs.items():
        option = ours[name]
        spellings = {f"--{name}", "--" + name.replace("-", "_"), *([f"-{option.short}"] if option.short else [])}
        assert set(action.option_strings) == spellings, name
        assert (action.nargs == 0) == (option.parse is None), name
        assert option.has_variable == isinstance(action, env | check_env), name
        assert option.choices == tuple(action.choices or ()), name
        if action.type in (int, float):
            assert option.parse is action.type, name


_VALUES = st.text(alphabet=string.ascii_letters + string.digits + ":,./", min_size=1, max_size=6)


def _values(option: TorchrunOption) -> st.SearchStrategy[str]:
    if option.name in OUTPUT_OPTIONS:
        return st.sampled_from(["0", "1"] if option.name == "local-ranks-filter" else ["3", "0:1", "0:1,12:2"])
    number = st.integers(0, 99).map(str)
    return st.sampled_from(option.choices) if option.choices else number if option.parse in (int, float) else _VALUES


@st.composite
def _command_lines(draw: st.DrawFn) -> list[str]:
    words: list[str] = []
    for option in draw(st.lists(st.sampled_from(OPTIONS), max_size=6)):
        name = option.name if draw(st.booleans()) else option.name.replace("-", "_")
        word = f"-{option.short}" if option.short and draw(st.booleans()) else f"--{name}"
        if option.parse is None:
            words.append(word)
            continue
        value = draw(_values(option))
        if draw(st.booleans()):
            words.append(f"{word}={value}")
        else:
            words += [word, value]
    program = draw(st.sampled_from(["train.py", "pkg.train", "./run"]))
    return [
        *words,
        program,
        *draw(st.lists(st.sampled_from(["--lr", "-m", "--tee=3", "x", "-", "--nnodes"]), max_size=4)),
    ]


@pytest.mark.fuzz
@fuzz_settings(50)
@given(_command_lines())
@example(["-t=3", "train.py", "-"])
@example(["-m", "-m", "pkg.train", "-m"])
@example(["--local_ranks_filter=0", "--nnodes", "1:4", "train.py", "--nnodes"])
def test_a_command_line_means_the_same_as_to_torchrun(words: list[str]) -> None:
    theirs = read_by_torchrun(words)
    assert theirs is not None
    assert_equal(read_command_line(words, {}, {}, lambda word: False), theirs)


_PIECES = [
    "-",
    "--",
    "=",
    "3",
    "0:1",
    "node",
    "-1",
    ".5",
    "x",
    "",
    "_",
    "o",
    "é",
    *(option.name for option in OPTIONS),
    "m",
    "t",
    "r",
]
_WORDS = st.lists(st.lists(st.sampled_from(_PIECES), max_size=4).map("".join), max_size=6)


@pytest.mark.fuzz
@fuzz_settings(50)
@given(_WORDS)
@example(["-t=", "3", "x"])
@example(["--role", "-1", "x"])
@example(["--tee=", "x"])
@example(["--t", "", ""])
@example(["-.5", "x"])
@example(["--rdzv-conf", "-a b", "x"])
@example(["--monitor-interval", "nan", "x"])
@example(["--max-restarts", "1_0", "x"])
def test_words_that_torchrun_reads_are_read_equally_or_have_a_wrong_value(words: list[str]) -> None:
    # How argparse drops `--` and joins letters with `=` depends on the version of Python.
    assume("--" not in words and not any(re.match("-[^-=][^=]+=", word) for word in words))
    theirs = read_by_torchrun(words)
    try:
        line = read_command_line(words, {}, {}, lambda word: False)
    except SpecError as error:
        assert theirs is None or _is_output_option(error.issues[0].path)
    else:
        if theirs is not None:
            assert_equal(line, theirs)


def _is_output_option(given: str) -> bool:
    """Return True for an option that decides about output, as it was typed: torchrun accepts abbreviations."""
    name = given.replace("_", "-")
    return name in ("-t", "-r") or any(f"--{option}".startswith(name) for option in OUTPUT_OPTIONS)


def read_by_torchrun(words: list[str]) -> dict[str, Any] | None:
    """Return the values of torchrun's own parser; None if it refuses the command line."""
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return vars(torchrun.parse_args(words))
    except SystemExit:
        return None


def assert_equal(line: CommandLine, theirs: dict[str, Any]) -> None:
    """Check that the command line means the same to torchrun."""
    assert line.rest == (theirs["training_script"], *theirs["training_script_args"])
    for option in OPTIONS:
        value = theirs[option.name.replace("-", "_")]
        if option.parse is None:
            assert (option.name in line.values) == value
        elif option.name in line.values and not option.name.startswith("duplicate"):
            kind = option.parse if option.parse in (int, float) else str
            assert str(kind(line.values[option.name])) == str(value)
