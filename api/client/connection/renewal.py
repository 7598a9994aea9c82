"""The token of a profile, renewed in time if an issuer gave it."""

import dataclasses
import time

from regroup.api.client.connection.profiles import (
    Profile,
    changing_profiles,
    load_profiles,
    save_profiles,
)
from regroup.api.client.connection.sign_in import IssuedTokens, renew_tokens
from regroup.service.domain.errors import UnauthorizedError

_BEFORE_END_S = 30.0
"""Time before its end at which a token is renewed."""


def fresh_token(profile: Profile) -> str:
    """Return the token of a profile, and store a renewed one.

    Raises:
        UnauthorizedError: the sign-in has ended.
        UnavailableError: the issuer does not answer.
    """
    if not _is_due(profile):
        return profile.token
    with changing_profiles():  # the issuer may accept a refresh token only once
        profiles = load_profiles()
        profile = profiles.named(profile.name)
        if not _is_due(profile):
            return profile.token
        renewal = profile.renewal
        assert renewal is not None, "a token without a renewal is never due"
        end = f"the sign-in to {profile.server} has ended; `regroup login --server {profile.server}` starts another one"
        if renewal.refresh_token is None:
            raise UnauthorizedError(end)
        try:
            tokens = renew_tokens(renewal.token_endpoint, renewal.client_id, renewal.refresh_token)
        except UnauthorizedError as error:
            raise UnauthorizedError(f"{end} ({error})") from error
        fresh = with_tokens(profile, tokens)
        save_profiles(profiles.with_profile(fresh, choose=False))
        return fresh.token


def with_tokens(profile: Profile, tokens: IssuedTokens) -> Profile:
    """Return a profile of an issuer with other tokens."""
    renewal = profile.renewal
    assert renewal is not None, "the profile is that of an issuer"
    token = tokens.id_token if renewal.is_id_token and tokens.id_token else tokens.access_token
    renewal = dataclasses.replace(renewal, refresh_token=tokens.refresh_token, expires_at=tokens.expires_at)
    return dataclasses.replace(profile, token=token, renewal=renewal)


def _is_due(profile: Profile) -> bool:
    return profile.renewal is not None and time.time() > profile.renewal.expires_at - _BEFORE_END_S
