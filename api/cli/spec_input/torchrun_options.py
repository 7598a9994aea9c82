"""torchrun's options: their spellings, values and variables, and what `regroup run` does with each. Pure."""

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from regroup.api.live.output_choice import parse_ranks, parse_streams
from regroup.service.domain.errors import FieldIssue, SpecError

_RENDEZVOUS = "regroup sets up the rendezvous"
_LOGS = "regroup stores the output of every rank: `regroup logs JOB --rank N`"
_AGENT = "regroup watches the ranks itself"
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_SHOWN = 60
"""Most characters of a value that a message shows."""


@dataclass(frozen=True)
class TorchrunOption:
    """One option of torchrun."""

    name: str
    """Name with hyphens, without those at its beginning. torchrun also takes it with underscores."""
    parse: Callable[[str], object] | None = str
    """Checks a value, and raises ValueError; None if the option takes no value."""
    short: str = ""
    """One letter; empty if there is none."""
    ignored_because: str = ""
    """Reason why `regroup run` does not use it; empty if it does."""
    choices: tuple[str, ...] = ()
    """Accepted values; any if empty."""
    has_variable: bool = True
    """torchrun reads the default from `PET_<NAME>`."""

    @property
    def variable(self) -> str:
        """Environment variable with the default, as torchrun names it."""
        return "PET_" + self.name.replace("-", "_").upper()


OPTIONS: Sequence[TorchrunOption] = (
    TorchrunOption("nnodes"),
    TorchrunOption("nproc-per-node"),
    TorchrunOption("max-restarts", int),
    TorchrunOption("module", None, "m"),
    TorchrunOption("no-python", None),
    TorchrunOption("role"),
    TorchrunOption("tee", parse_streams, "t"),
    TorchrunOption("redirects", parse_streams, "r"),
    TorchrunOption("local-ranks-filter", parse_ranks),
    TorchrunOption("log-dir", ignored_because=_LOGS),
    TorchrunOption("duplicate-stdout-filters", ignored_because=_LOGS),
    TorchrunOption("duplicate-stderr-filters", ignored_because=_LOGS),
    TorchrunOption("logs-specs", ignored_because=_LOGS, has_variable=False),
    TorchrunOption("standalone", None, ignored_because=_RENDEZVOUS),
    TorchrunOption("rdzv-backend", ignored_because=_RENDEZVOUS),
    TorchrunOption("rdzv-endpoint", ignored_because=_RENDEZVOUS),
    TorchrunOption("rdzv-id", ignored_because=_RENDEZVOUS),
    TorchrunOption("rdzv-conf", ignored_because=_RENDEZVOUS),
    TorchrunOption("node-rank", int, ignored_because=_RENDEZVOUS),
    TorchrunOption("master-addr", ignored_because=_RENDEZVOUS),
    TorchrunOption("master-port", int, ignored_because=_RENDEZVOUS),
    TorchrunOption("local-addr", ignored_because=_RENDEZVOUS),
    TorchrunOption("monitor-interval", float, ignored_because=_AGENT),
    TorchrunOption("event-log-handler", ignored_because=_AGENT),
    TorchrunOption(
        "start-method", choices=("spawn", "fork", "forkserver"),
        ignored_because="regroup forks ranks from a process that has imported torch",
    ),
    TorchrunOption("run-path", None, ignored_because="a rank runs its script in the interpreter that forked it"),
    TorchrunOption(
        "numa-binding", choices=("node", "socket", "exclusive", "core-complex"), has_variable=False,
        ignored_because="regroup does not bind ranks to cores",
    ),
    TorchrunOption(
        "signals-to-handle", ignored_because="a signal to `regroup run` ends the display only: `regroup cancel JOB`"
    ),
    TorchrunOption("shutdown-timeout", int, ignored_because="regroup decides how long a program has to end"),
    TorchrunOption(
        "virtual-local-rank", None,
        ignored_because="a rank sees all devices of its job on the node, and LOCAL_RANK selects one",
    ),
)  # fmt: skip
"""All options of torchrun. A test compares them with torchrun's own parser."""
OUTPUT_OPTIONS = ("tee", "redirects", "local-ranks-filter")
"""Options about the display only. They also apply to a spec file."""
_BY_NAME = {option.name: option for option in OPTIONS}
_BY_SHORT = {option.short: option for option in OPTIONS if option.short}


@dataclass(frozen=True)
class CommandLine:
    """A command line of `regroup run`, with torchrun's options taken out of it."""

    rest: tuple[str, ...]
    """Options of regroup, then the program and its arguments."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """Option of torchrun → its value; empty for one that takes none."""
    from_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options of torchrun that only a `PET_…` variable sets."""
    is_spec: bool = False
    """True if it names a spec file, not a program."""

    @property
    def all_values(self) -> Mapping[str, str]:
        """Values of the command line and of variables."""
        return {**self.from_variables, **self.values}

    @property
    def changes_the_job(self) -> bool:
        """True if an option of torchrun is about more than the display."""
        return any(name not in OUTPUT_OPTIONS for name in self.values)

    def for_regroup(self) -> list[str]:
        """Return the arguments for the parser of regroup's options, with the options of torchrun that are used."""
        used = {name: value for name, value in self.all_values.items() if not _BY_NAME[name].ignored_because}
        return [
            f"--{name}" if _BY_NAME[name].parse is None else f"--{name}={value}" for name, value in used.items()
        ] + [*self.rest]

    def notes(self) -> list[str]:
        """Return one line for each reason for which options are ignored."""
        by_reason: dict[str, list[str]] = {}
        for name in self.all_values:
            if reason := _BY_NAME[name].ignored_because:
                shown = f"--{name}" if name in self.values else _BY_NAME[name].variable
                by_reason.setdefault(reason, []).append(shown)
        return [f"{', '.join(names)} {_are(names)} ignored: {reason}" for reason, names in by_reason.items()]


def read_command_line(
    args: Sequence[str],
    own: Mapping[str, bool],
    environment: Mapping[str, str],
    is_spec: Callable[[str], bool],
) -> CommandLine:
    """Take torchrun's options out of a command line, as torchrun's own parser would read them.

    Options end at the program, but not at a spec file. Underscores count as hyphens, `--tee=3`, `--tee 3`, `-t3` and
    `-t 3` are equal, and the beginning of a long option is enough if only one option has it.

    Args:
        args: The arguments of `regroup run`.
        own: Options of regroup, with their hyphens → whether they take a value.
        environment: Variables, of which those named `PET_…` set defaults for a program.
        is_spec: Return whether an argument is a spec file.

    Raises:
        SpecError: an option is ambiguous, lacks its value, or has an invalid one.
    """
    rest: list[str] = []
    values: dict[str, str] = {}
    words = deque(args)
    is_program, names_spec = False, False
    while words:
        word = words.popleft()
        if word == "--" or not _is_option(word):
            names_spec = names_spec or (word != "--" and is_spec(word))
            is_program = not names_spec
            rest.append(word)
            if is_program:
                break
            continue
        name, equals, value = word.partition("=")
        long = "--" + name[2:].replace("_", "-")
        if word.startswith("--") and long in own:
            rest.append(long + equals + value)
            if own[long] and not equals and words:
                rest.append(words.popleft())
        elif word.startswith("--"):
            option = _find_long(long, name)
            if option is None:
                rest.append(word)  # the parser of regroup's options reports it
            else:
                _read_value(option, name, value if equals else None, words, values)
        elif own_short := _own_short(word, own):
            rest.append(word)
            if own_short == word and own[own_short] and words:
                rest.append(words.popleft())
        elif not _read_short(word, words, values):
            rest.append(word)
    from_variables = _variables(environment, values) if is_program else {}
    return CommandLine((*rest, *words), values, from_variables, names_spec)


def _find_long(long: str, given: str) -> TorchrunOption | None:
    """Return the option of this name, or the only one whose name begins so."""
    name = long[2:]
    if name in _BY_NAME:
        return _BY_NAME[name]
    matching = [option for option in OPTIONS if name and option.name.startswith(name)]
    if len(matching) > 1:
        names = ", ".join(f"--{option.name}" for option in matching)
        raise _refuse(given, f"is the beginning of several options of torchrun: {names}")
    return matching[0] if matching else None


def _own_short(word: str, own: Collection[str]) -> str:
    return word[:2] if word[:2] in own and word[1:2] not in _BY_SHORT else ""


def _read_short(word: str, words: deque[str], values: dict[str, str]) -> bool:
    """Read letters such as `-m`, `-t3`, `-t=3` or `-mt 3`. Return False if torchrun does not have the first one."""
    letters = word[1:]
    if letters[0] not in _BY_SHORT:
        return False
    while letters:
        option = _BY_SHORT.get(letters[0])
        if option is None:
            raise _refuse(word, f"-{letters[0]} is not an option of torchrun; write each option alone")
        if option.parse is not None:
            value = letters[1:].removeprefix("=") if letters[1:] else None
            _read_value(option, f"-{letters[0]}", value, words, values)
            break
        _read_value(option, f"-{letters[0]}", None, words, values)
        letters = letters[1:]
    return True


def _read_value(
    option: TorchrunOption, given: str, value: str | None, words: deque[str], values: dict[str, str]
) -> None:
    """Add the value of an option, from the word itself or from the next one."""
    if option.parse is None:
        if value is not None:
            raise _refuse(given, "takes no value", value)
        values[option.name] = ""
        return
    if value is None:
        if not words or _is_option(words[0]):
            raise _refuse(given, f"needs a value: {given}=VALUE")
        value = words.popleft()
    values[option.name] = _checked(option, given, value)


def _checked(option: TorchrunOption, given: str, value: str) -> str:
    try:
        if option.parse is not None:
            option.parse(value)
    except ValueError as error:
        kinds: Mapping[object, str] = {int: "must be an integer", float: "must be a number"}
        raise _refuse(given, kinds.get(option.parse, str(error)), value) from None
    if option.choices and value not in option.choices:
        raise _refuse(given, f"must be one of {', '.join(option.choices)}", value)
    return value


def _refuse(given: str, message: str, value: str | None = None) -> SpecError:
    return SpecError([FieldIssue(given[:_SHOWN], message, None if value is None else value[:_SHOWN])])


def _variables(environment: Mapping[str, str], given: Collection[str]) -> dict[str, str]:
    """Return what `PET_…` variables set and the command line does not."""
    found: dict[str, str] = {}
    for option in OPTIONS:
        value = environment.get(option.variable) if option.has_variable else None
        if value is None or option.name in given:
            continue
        if option.parse is not None:
            found[option.name] = _checked(option, option.variable, value)
        elif value not in ("0", "1"):
            raise _refuse(option.variable, "must be 0 or 1", value)
        elif value == "1":
            found[option.name] = ""
    return found


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _is_option(word: str) -> bool:
    """Return whether torchrun's parser takes a word for an option, not for a value or the program."""
    is_number = _NEGATIVE_NUMBER.fullmatch(word) is not None
    return word.startswith("-") and word != "-" and not is_number and " " not in word.partition("=")[0]
