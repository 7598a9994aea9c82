"""torchrun's options: all of them, in all spellings that its own parser takes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regroup.api.cli.spec_input.torchrun_options import OPTIONS, CommandLine, TorchrunOption, read_command_line
from regroup.service.domain.errors import SpecError
from tests.support.inputs.fuzz import fuzz_settings, limited_time

OWN = {"--name": True, "--json": False, "--set": True}


def read(*args: str, **variables: str) -> CommandLine:
    return read_command_line(args, OWN, variables, lambda word: word.endswith(".yaml"))


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_spelling_is_read(option: TorchrunOption) -> None:
    value = option.choices[0] if option.choices else "3"  # an accepted value of all others
    underscored = "--" + option.name.replace("-", "_")
    spellings = [[f"--{option.name}"], [underscored], *([[f"-{option.short}"]] if option.short else [])]
    if option.parse is not None:
        spellings = [[*each, value] for each in spellings] + [[f"{each[0]}={value}"] for each in spellings]
        spellings += [[f"-{option.short}{value}"]] if option.short else []
    for words in spellings:
        line = read(*words, "x.py", "--tee", "9")
        assert line.values == {option.name: "" if option.parse is None else value}, words
        assert line.rest == ("x.py", "--tee", "9"), words
    if option.ignored_because:
        assert read(*spellings[0], "x.py").notes() == [f"--{option.name} is ignored: {option.ignored_because}"]
        assert read(*spellings[0], "x.py").for_regroup() == ["x.py"]
    else:
        assert read(*spellings[0], "x.py").for_regroup()[1:] == ["x.py"]


def test_a_whole_command_line_is_read() -> None:
    line = read(
        "--nnodes=1:4", "--nproc_per_node", "gpu", "--name", "--role", "--rdzv-backend=c10d", "--rdzv_endpoint", "h:1",
        "--standalone", "--tee", "3", "-r", "0:1,1:2", "--log-dir", "D", "--local-ranks-filter", "0",
        "--role", "trainer", "--json", "-m", "pkg.train", "--lr", "0.1", "-m",
    )  # fmt: skip
    assert line.for_regroup() == [
        "--nnodes=1:4", "--nproc-per-node=gpu", "--tee=3", "--redirects=0:1,1:2", "--local-ranks-filter=0",
        "--role=trainer", "--module",
        "--name", "--role", "--json", "pkg.train", "--lr", "0.1", "-m",
    ]  # fmt: skip
    assert line.notes() == [
        "--rdzv-backend, --rdzv-endpoint, --standalone are ignored: regroup sets up the rendezvous",
        "--log-dir is ignored: regroup stores the output of every rank: `regroup logs JOB --rank N`",
    ]


def test_the_beginning_of_a_name_is_enough_if_only_one_option_has_it() -> None:
    assert read("--nproc", "2", "--standa", "--rdzv-b=c10d", "x.py").values == {
        "nproc-per-node": "2", "standalone": "", "rdzv-backend": "c10d",
    }  # fmt: skip
    with pytest.raises(SpecError, match="--rdzv: is the beginning of several options of torchrun: --rdzv-backend, "):
        read("--rdzv", "x", "x.py")


def test_letters_can_be_joined() -> None:
    assert read("-mt3", "x").values == {"module": "", "tee": "3"}
    assert read("-mr", "0:3", "x").values == {"module": "", "redirects": "0:3"}
    assert read("-x", "x.py").rest == ("-x", "x.py"), "the parser of regroup's options reports it"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--tee"], "--tee: needs a value: --tee=VALUE"),
        (["--tee", "--json", "x.py"], "--tee: needs a value"),
        (["--standalone=1", "x.py"], "--standalone: takes no value"),
        (["--max-restarts", "many", "x.py"], "--max-restarts: must be an integer"),
        (["--monitor-interval", "x", "x.py"], "--monitor-interval: must be a number"),
        (["--start-method", "thread", "x.py"], "must be one of spawn, fork, forkserver"),
        (["--tee", "4", "x.py"], r"--tee: '4' is not one of 0 \(none\), 1 \(stdout\), 2 \(stderr\) or 3 \(both\)"),
        (["-r0:x", "x.py"], "-r: 'x' is not one of 0"),
        (["--local-ranks-filter=all", "x.py"], "--local-ranks-filter: 'all' is not a rank; write numbers"),
        (["-mz", "x.py"], "-z is not an option of torchrun"),
    ],
)
def test_an_invalid_option_is_named(args: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read(*args)


def test_options_about_the_display_do_not_change_the_job() -> None:
    assert not read("job.yaml", "--tee", "3", "--local-ranks-filter=0").changes_the_job
    assert read("job.yaml", "--tee", "3", "--standalone").changes_the_job


def test_variables_set_defaults_as_for_torchrun() -> None:
    line = read(
        "--nnodes", "3", "x.py", PET_NNODES="2", PET_NPROC_PER_NODE="8", PET_STANDALONE="1", PET_MODULE="0",
        PET_RDZV_ENDPOINT="h:1", PET_NUMA_BINDING="node", NNODES="9",
    )  # fmt: skip
    assert line.all_values == {"nnodes": "3", "nproc-per-node": "8", "standalone": "", "rdzv-endpoint": "h:1"}
    assert line.for_regroup() == ["--nproc-per-node=8", "--nnodes=3", "x.py"]
    assert line.notes() == ["PET_STANDALONE, PET_RDZV_ENDPOINT are ignored: regroup sets up the rendezvous"]
    assert read("spec.yaml", "--set", "a=b", PET_NNODES="2").for_regroup() == ["spec.yaml", "--set", "a=b"]
    with pytest.raises(SpecError, match="PET_MAX_RESTARTS: must be an integer"):
        read("x.py", PET_MAX_RESTARTS="x")
    with pytest.raises(SpecError, match="PET_STANDALONE: must be 0 or 1"):
        read("x.py", PET_STANDALONE="yes")


@pytest.mark.fuzz
@fuzz_settings(60)
@given(
    st.lists(st.text(alphabet="-=mtrnosd_x.3yal :,", max_size=12) | st.text(max_size=6), max_size=6),
    st.dictionaries(st.sampled_from([option.variable for option in OPTIONS]), st.text(max_size=4), max_size=2),
)
@example(["-"], {})
@example(["--"], {})
@example(["--="], {})
@example(["-="], {})
@example(["-t", "-1"], {})
@example(["--tee", "\0"], {})
@example(["--max-restarts", "9" * 5000, "x"], {})
@example(["--", "x"], {"PET_TEE": "4"})
@example(["--"] * 100_000, {})
@example(["-m"] * 100_000, {})
def test_any_words_are_read_or_refused_within_a_second(words: list[str], variables: dict[str, str]) -> None:
    with limited_time():
        try:
            line = read(*words, **variables)
        except SpecError as error:
            assert error.issues[0].path.startswith(("-", "PET_"))
            assert len(str(error)) < 1000
        else:
            assert all(name in {option.name for option in OPTIONS} for name in line.all_values)
            assert isinstance(line.for_regroup(), list) and isinstance(line.notes(), list)
