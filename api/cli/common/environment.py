"""Warnings about environment variables that have regroup's prefix but that nothing reads."""

import os
from collections.abc import Mapping

from regroup.api.cli.common.output import print_message
from regroup.service.domain.environment_variables import unknown_variables

_COMPLETES = "_REGROUP_COMPLETE"
_SETTINGS_OF_CLIENTS = ("REGROUP_STATE_DIR", "REGROUP_TOKEN_FILE")


def warn_of_unknown_variables(environment: Mapping[str, str] = os.environ) -> None:
    """Print one line for each variable `REGROUP_…` that nothing reads, with the most similar known name."""
    if _COMPLETES in environment or not unknown_variables(environment, _SETTINGS_OF_CLIENTS):
        return
    from regroup.service.settings import Settings  # imported late: it needs pydantic

    for name, similar in unknown_variables(environment, [f"REGROUP_{each.upper()}" for each in Settings.model_fields]):
        hint = f"did you mean {similar}?" if similar else "docs/reference/settings.md lists the known ones"
        print_message(f"warning: nothing reads the environment variable {name}: {hint}")
