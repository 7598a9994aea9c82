"""The commands login, logout and profiles: sign in to servers, and choose the one that commands use."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regroup.api.cli.common.groups import GroupedCommands
from regroup.api.cli.common.options import AsJson, Server
from regroup.api.cli.common.output import print_json, print_message, print_table

if TYPE_CHECKING:
    from regroup.api.client.connection.profiles import Profile
    from regroup.api.client.connection.sign_in import IssuedTokens, IssuerEndpoints

app = typer.Typer(
    cls=GroupedCommands,
    help="List the servers to which you have signed in, and choose the one that commands use.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NewProfile = Annotated[
    str | None,
    typer.Option(
        "--profile", metavar="NAME", help="Name of the profile.  [default: host of the server]", show_default=False
    ),
]
WithToken = Annotated[
    bool, typer.Option("--with-token", help="Read a token of `regroup token create` from standard input.")
]
Device = Annotated[bool, typer.Option("--device", help="Show a code to enter in a browser of another machine.")]
CaFile = Annotated[
    str | None,
    typer.Option("--ca-file", metavar="FILE", help="File with the authorities to trust for this server, PEM."),
]


def login(
    server: Server = None,
    profile: NewProfile = None,
    with_token: WithToken = False,
    device: Device = False,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Sign in to a server, and use it from then on. Opens a browser if the server has an identity provider."""
    from regroup.api.client.connection.address import server_url

    if not server:
        raise typer.BadParameter("--server: name the server to sign in to; the server of this machine needs no sign-in")
    url = server_url(server)
    ca_file = None if ca_file is None else str(Path(ca_file).expanduser().absolute())  # commands run in any folder
    found = _with_token(url, ca_file) if with_token else _with_issuer(url, ca_file, device=device)
    subject = _store(found, profile)
    if as_json:
        print_json({"profile": found.name if profile is None else profile, "server": url, "subject": subject})
    else:
        print(f"signed in to {url} as {subject}")


def logout(profile: NewProfile = None) -> None:
    """Remove a profile and its token from this machine.  [default: the profile that commands use]"""
    from regroup.api.client.connection.profiles import changing_profiles, load_profiles, save_profiles
    from regroup.service.domain.errors import NotFoundError

    with changing_profiles():
        profiles = load_profiles()
        name = profile or profiles.chosen
        if name is None:
            raise NotFoundError("commands use the server of this machine, which needs no sign-in; name a --profile")
        removed = profiles.named(name)
        save_profiles(profiles.without(name))
    print(f"removed the profile {name}")
    if removed.renewal is None:
        print_message("the token itself is valid until it ends; `regroup token revoke` ends it at once")


def profiles_list(as_json: AsJson = False) -> None:
    """List the profiles, without their tokens."""
    from regroup.api.client.connection.profiles import load_profiles

    profiles = load_profiles()
    every = [profiles.all[name] for name in sorted(profiles.all)]
    if as_json:
        shown = {each.name: {"server": each.server, "sign_in": _kind(each)} for each in every}
        print_json({"used": profiles.chosen, "profiles": shown})
        return
    rows = [("*" if each.name == profiles.chosen else "", each.name, each.server, _kind(each)) for each in every]
    print_table(("USED", "PROFILE", "SERVER", "SIGN-IN"), rows)


def profiles_use(
    profile: Annotated[str | None, typer.Argument(metavar="[PROFILE]", help="Name of the profile.")] = None,
    local: Annotated[bool, typer.Option("--local", help="Use the server of this machine.")] = False,
) -> None:
    """Choose the server that commands use without --server."""
    from regroup.api.client.connection.profiles import Profiles, changing_profiles, load_profiles, save_profiles

    if (profile is None) is not local:
        raise typer.BadParameter("name a profile, or give --local")
    with changing_profiles():
        profiles = load_profiles()
        chosen = None if profile is None else profiles.named(profile)
        save_profiles(Profiles(profiles.all, None if chosen is None else chosen.name))
    print("commands use " + ("the server of this machine" if chosen is None else chosen.server))


app.command("list")(profiles_list)
app.command("use")(profiles_use)


def _with_token(url: str, ca_file: str | None) -> "Profile":
    from regroup.api.client.connection.profiles import Profile
    from regroup.service.domain.errors import UnauthorizedError

    token = (typer.prompt("token", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not token:
        raise UnauthorizedError("standard input has no token; `regroup token create` prints one")
    return Profile(_host(url), url, token, ca_file)


def _with_issuer(url: str, ca_file: str | None, *, device: bool) -> "Profile":
    """Sign in at the issuer of the server. Its token for the server is the ID token or the access token."""
    from regroup.api.client.client import Client
    from regroup.api.client.connection.profiles import Profile, Renewal
    from regroup.api.client.connection.sign_in import discover
    from regroup.service.domain.errors import UnauthorizedError

    with Client(url, token="none", ca_file=ca_file) as client:  # the request needs no token
        offered = client.sign_in_methods()
    if offered.issuer is None:
        raise UnauthorizedError(
            f"{url} has no identity provider; pipe a token of `regroup token create` into `regroup login --with-token`"
        )
    endpoints = discover(offered.issuer)
    tokens = _tokens(endpoints, offered.client_id, offered.scopes, device=device)
    refusals: list[str] = []
    for is_id_token, token in ((True, tokens.id_token), (False, tokens.access_token)):
        if token is None:
            continue
        try:
            _subject(url, token, ca_file)
        except UnauthorizedError as error:
            refusals.append(str(error))
            continue
        renewal = Renewal(
            endpoints.token, offered.client_id, tokens.refresh_token, tokens.expires_at, is_id_token=is_id_token
        )
        return Profile(_host(url), url, token, ca_file, renewal)
    raise UnauthorizedError(
        f"{url} accepts neither the ID token nor the access token of {offered.issuer} ({'; '.join(refusals)}). If the "
        "token is for another audience, its operator checks REGROUP_OIDC_AUDIENCE and REGROUP_OIDC_CLIENT_ID"
    )


def _tokens(endpoints: "IssuerEndpoints", client_id: str, scopes: str, *, device: bool) -> "IssuedTokens":
    import webbrowser

    from regroup.api.client.connection.sign_in import sign_in_with_browser, sign_in_with_device

    def show(url: str, code: str) -> None:
        print_message(f"open {url} in a browser, and enter the code {code}")

    def open_page(url: str) -> None:
        print_message(f"sign in with your browser; if no page opens, open {url}")
        webbrowser.open(url)

    if device:
        return sign_in_with_device(endpoints, client_id, scopes, show)
    return sign_in_with_browser(endpoints, client_id, scopes, open_page)


def _store(found: "Profile", name: str | None) -> str:
    """Check a token, store the profile and choose it. Return the name of the identity."""
    import dataclasses

    from regroup.api.client.connection.profiles import changing_profiles, check_name, load_profiles, save_profiles

    profile = dataclasses.replace(found, name=check_name(name or found.name))
    subject = _subject(profile.server, profile.token, profile.ca_file)
    with changing_profiles():
        save_profiles(load_profiles().with_profile(profile, choose=True))
    return subject


def _subject(url: str, token: str, ca_file: str | None) -> str:
    """Return the identity of a token; raises UnauthorizedError if the server does not accept it."""
    from regroup.api.client.client import Client
    from regroup.api.client.connection.errors import ApiError
    from regroup.service.domain.errors import UnauthorizedError

    try:
        with Client(url, token=token, ca_file=ca_file) as client:
            return client.me().subject
    except ApiError as error:
        if error.problem.status == 401:
            raise UnauthorizedError(f"{url} does not accept the token: {error.problem.detail}") from error
        raise


def _host(url: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname or "local-socket"


def _kind(profile: "Profile") -> str:
    return "token" if profile.renewal is None else "identity provider"
