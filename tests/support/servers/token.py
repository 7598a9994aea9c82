"""Variables of all servers and clients that tests start: one token for all, and no Ray dashboard."""

import secrets
from collections.abc import Iterator

import pytest

from regroup.service.local.api_token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from regroup.service.local.private_files import create_private


@pytest.fixture(scope="session", autouse=True)
def token_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Set the variables; return the token. A test of a default deletes its variable."""
    path, token = tmp_path_factory.mktemp("token") / "api.token", secrets.token_urlsafe(32)
    create_private(path, token)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(TOKEN_VARIABLE, raising=False)
        patch.setenv(TOKEN_FILE_VARIABLE, str(path))
        patch.setenv("REGROUP_CONFIG_DIR", str(path.parent / "config"))  # not the profiles of this user
        patch.setenv("REGROUP_RAY_DASHBOARD", "false")  # a start is faster, and Ray takes less memory
        patch.setenv("REGROUP_RAY_DASHBOARD_PORT", "0")  # several servers with one would race for the usual port
        yield token
