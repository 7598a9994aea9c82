"""Settings of pip, converted to settings of uv. uv itself reads neither `PIP_*` variables nor `pip.conf`."""

import configparser
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TRUE = frozenset({"1", "on", "t", "true", "y", "yes"})
_INDEX_STRATEGY = "UV_INDEX_STRATEGY"
_ALIASES = {"UV_INDEX_URL": "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL": "UV_INDEX"}
"""Deprecated variable of uv → its successor."""
_WITHOUT_EFFECT = frozenset(
    {
        "cache-dir", "config-file", "disable-pip-version-check", "no-cache-dir", "no-color", "no-input",
        "no-python-version-warning", "no-warn-script-location", "prefer-binary", "progress-bar", "quiet",
        "root-user-action", "verbose",
    }
)  # fmt: skip
"""Settings of pip that have no meaning for uv, so that no warning is due."""


@dataclass(frozen=True)
class UvSettings:
    """Settings for one run of uv."""

    variables: Mapping[str, str]
    has_index: bool = True
    """False for pip's `no-index`. uv has an option for it and no variable."""
    ignored: tuple[str, ...] = ()
    """Settings of pip without a counterpart in uv."""


def uv_settings(env: Mapping[str, str], job_names: Collection[str]) -> UvSettings:
    """Return the settings for uv from an environment and the files `pip.conf` of this node.

    Later layers take precedence: `pip.conf`, variables of the node, variables of the job. Within a layer `UV_*` takes
    precedence over `PIP_*`.

    Args:
        env: Environment of the installation.
        job_names: Names of the variables in `env` that the job defines.
    """
    layers = [
        read_pip_conf(pip_conf_files(env)),
        _pip_options({name: value for name, value in env.items() if name not in job_names}),
        _pip_options({name: value for name, value in env.items() if name in job_names}),
    ]
    variables: dict[str, str] = {}
    options: dict[str, str] = {}
    for options_of_layer, is_of_job in zip(layers, (False, False, True), strict=True):
        options |= options_of_layer
        for name, value in options_of_layer.items():
            variables |= _converted(name, value)
        own = {name: value for name, value in env.items() if (name in job_names) is is_of_job}
        variables |= {_ALIASES.get(name, name): value for name, value in own.items() if name.startswith("UV_")}
    if "extra-index-url" in options:
        # As pip does: the best version of all indexes. uv would take the first index that has the package.
        variables.setdefault(_INDEX_STRATEGY, "unsafe-best-match")
    unknown = sorted(options.keys() - _CONVERSIONS.keys() - _WITHOUT_EFFECT - {"no-index"})
    return UvSettings(variables, options.get("no-index", "").lower() not in _TRUE, tuple(unknown))


def pip_conf_files(env: Mapping[str, str]) -> list[Path]:
    """Return the configuration files that pip would read, in increasing precedence."""
    if env.get("PIP_CONFIG_FILE") == os.devnull:
        return []
    home = Path(env.get("HOME", "/"))
    system = [Path(folder) / "pip" for folder in reversed(env.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep))]
    user = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip"
    folders = [*system, Path("/etc"), home / ".pip", user, Path(sys.prefix)]
    own = env.get("PIP_CONFIG_FILE")
    return [*(folder / "pip.conf" for folder in folders), *([Path(own)] if own else [])]


def read_pip_conf(files: Iterable[Path]) -> dict[str, str]:
    """Return the options of the sections `global` and `install`. Unreadable files are skipped."""
    options: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file)
        except (configparser.Error, OSError, UnicodeDecodeError):
            continue
        for section, found in options.items():
            if parser.has_section(section):
                found |= {_option_name(name): value for name, value in parser.items(section)}
    return options["global"] | options["install"]


def _pip_options(env: Mapping[str, str]) -> dict[str, str]:
    return {
        _option_name(name.removeprefix("PIP_")): value
        for name, value in env.items()
        if name.startswith("PIP_") and value
    }


def _option_name(name: str) -> str:
    name = name.lower().replace("_", "-")
    return {"default-timeout": "timeout"}.get(name, name)


def _converted(option: str, value: str) -> dict[str, str]:
    return _CONVERSIONS[option](value) if option in _CONVERSIONS and value.strip() else {}


def _list(variable: str, separator: str = " ") -> Callable[[str], dict[str, str]]:
    return lambda value: {variable: separator.join(value.split())}


def _packages(every: str, some: str) -> Callable[[str], dict[str, str]]:
    """Convert pip's list of packages, or `:all:`."""

    def convert(value: str) -> dict[str, str]:
        names = value.replace(",", " ").split()
        return {every: "1"} if ":all:" in names else {some: " ".join(name for name in names if name != ":none:")}

    return convert


def _flag(variable: str, when_set: str) -> Callable[[str], dict[str, str]]:
    return lambda value: {variable: when_set} if value.lower() in _TRUE else {}


_CONVERSIONS: Mapping[str, Callable[[str], dict[str, str]]] = {
    "index-url": _list("UV_DEFAULT_INDEX"),
    "extra-index-url": _list("UV_INDEX"),
    "find-links": _list("UV_FIND_LINKS", ","),
    "constraint": _list("UV_CONSTRAINT"),
    "build-constraint": _list("UV_BUILD_CONSTRAINT"),
    "cert": _list("SSL_CERT_FILE"),
    "client-cert": _list("SSL_CLIENT_CERT"),
    "trusted-host": _list("UV_INSECURE_HOST"),
    "proxy": lambda value: {"HTTP_PROXY": value, "HTTPS_PROXY": value},
    "timeout": _list("UV_HTTP_TIMEOUT"),
    "retries": _list("UV_HTTP_RETRIES"),
    "pre": _flag("UV_PRERELEASE", "allow"),
    "require-hashes": _flag("UV_REQUIRE_HASHES", "1"),
    "uploaded-prior-to": _list("UV_EXCLUDE_NEWER"),
    "only-binary": _packages("UV_NO_BUILD", "UV_NO_BUILD_PACKAGE"),
    "no-binary": _packages("UV_NO_BINARY", "UV_NO_BINARY_PACKAGE"),
}
"""Option of pip → function that returns the variables of uv for a value."""
