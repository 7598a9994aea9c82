"""The price table of an operator: the price of one device-hour for each accelerator."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from regroup.service.documents.document import DocumentError
from regroup.service.documents.yaml_text import parse_yaml
from regroup.service.domain.errors import FieldIssue, SettingError
from regroup.service.spec.issues import find_issues, issues_at
from regroup.service.spec.types import CURRENCY, LabelValue, Number, SpecModel

_MOST_PRICES = 256
_PLACE = "REGROUP_PRICES"


class PriceTable(SpecModel):
    """Prices of device-hours, in one currency."""

    currency: Annotated[str, Field(pattern=CURRENCY)]
    """Code of the currency in three letters, for example `EUR`."""
    device_hour: Annotated[
        dict[LabelValue, Annotated[Number, Field(ge=0, le=1e9)]], Field(min_length=1, max_length=_MOST_PRICES)
    ]
    """Accelerator → price of one device-hour. `cpu` is a rank without a GPU, `cuda` a GPU of an unknown type."""


@lru_cache(maxsize=16)
def read_prices(setting: str) -> PriceTable | None:
    """Return the table that the setting `prices` names or contains; None if it is empty.

    A table is read once. A restart of the server reads it again.

    Args:
        setting: path of a YAML or JSON file, or the document itself, which begins with `{`.

    Raises:
        SettingError: the file cannot be read, or a field is wrong.
    """
    if not setting.strip():
        return None
    if setting.lstrip().startswith("{"):
        return _parse(setting, _PLACE)
    path = Path(setting).expanduser()
    try:
        return _parse(path.read_bytes(), f"{_PLACE}, {path}")
    except OSError as error:
        message = f"cannot read the price table: {error.strerror}; give the path of a YAML or JSON file"
        raise SettingError([FieldIssue(_PLACE, message, str(path))]) from error


def _parse(text: str | bytes, place: str) -> PriceTable:
    try:
        data = parse_yaml(text)
    except DocumentError as error:
        raise SettingError(issues_at(place, error.issues)) from error
    try:
        return PriceTable.model_validate(data)
    except ValidationError as error:
        raise SettingError(issues_at(place, find_issues(error, data))) from error
