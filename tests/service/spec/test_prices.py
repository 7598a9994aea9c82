"""The price table: a file or the setting itself, read strictly."""

from pathlib import Path

import pytest

from regroup.service.domain.errors import SettingError
from regroup.service.spec.prices import PriceTable, read_prices

TABLE = PriceTable(currency="EUR", device_hour={"H100": 2.5, "cpu": 0.02})


@pytest.mark.parametrize("text", ["currency: EUR\ndevice_hour:\n  H100: 2.5\n  cpu: 0.02\n", TABLE.model_dump_json()])
def test_a_table_is_read_from_a_file_of_yaml_or_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices").write_text(text)
    assert read_prices(str(tmp_path / "prices")) == TABLE


def test_a_table_can_be_the_setting_itself() -> None:
    assert read_prices(TABLE.model_dump_json()) == TABLE
    assert read_prices("{currency: EUR, device_hour: {H100: 2.5, cpu: 0.02}}") == TABLE
    assert read_prices("") is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("{currency: EUR}", "device_hour: is required"),
        ("{currency: EUR, device_hour: {}}", "must have at least 1 item"),
        ("{currency: euro, device_hour: {H100: 1}}", "currency: must be three capital letters"),
        ("{currency: EUR, device_hour: {H100: -1}}", "device_hour.H100: must be ≥ 0"),
        ("{currency: EUR, device_hour: {H100: '1'}}", "device_hour.H100: must be a number"),
        ("{currency: EUR, device_hour: {H100: .inf}}", "H100"),
        ("{currency: EUR, device_hour: {'H 100': 1}}", "must be the value of a label"),
        ("{currency: EUR, device_hours: {H100: 1}}", "device_hours: unknown field"),
        ("{currency: EUR, device_hour: [1]}", "device_hour: must be a mapping"),
        ("{currency: EUR", "REGROUP_PRICES: line 2"),
        ("{}: 1", "REGROUP_PRICES: "),
        ("/no/such/file", "cannot read the price table: No such file or directory"),
        ("/", "cannot read the price table: Is a directory"),
    ],
)
def test_a_wrong_table_is_refused_with_its_field(setting: str, message: str) -> None:
    with pytest.raises(SettingError) as refused:
        read_prices(setting)
    assert "REGROUP_PRICES" in str(refused.value) and message in str(refused.value), str(refused.value)
