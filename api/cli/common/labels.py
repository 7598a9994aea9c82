"""Labels on the command line."""

from collections.abc import Sequence

from regroup.service.domain.errors import FieldIssue, SpecError


def parse_labels(given: Sequence[str]) -> dict[str, str]:
    """Return the labels of options of the form KEY=VALUE.

    Raises:
        SpecError: an option has another form.
    """
    found: dict[str, str] = {}
    for each in given:
        key, separator, value = each.partition("=")
        if not separator or not key:
            raise SpecError([FieldIssue("--label", "must be KEY=VALUE", each)])
        found[key] = value
    return found
