"""The fit recovers constants, and the evaluation does not depend on the times of the evaluated file."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from regroup.service.planner import evaluate as evaluating
from regroup.service.planner import fit as fitting
from regroup.service.planner.constants import FITTED, RANGES, Constants, from_json
from regroup.service.planner.evaluate import evaluate
from regroup.service.planner.fit import fit
from regroup.service.planner.measured_rows import Row, read_row
from regroup.service.planner.time_model import step_time

TRUTH = replace(Constants(), matmul=0.7, step_s=0.4)
LAYOUTS = [(1, 1, 64), (2, 1, 32), (4, 1, 16), (8, 1, 8), (1, 2, 32), (2, 4, 8), (8, 8, 1), (4, 2, 8)]


def columns(tp: int, pp: int, dp: int, mbs: int, step_s: float = 5.0) -> dict[str, str]:
    """Return a row of a 3.6B model on 64 devices."""
    sizes = {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "mbs": mbs,
        "gbs": 512,
        "gpus": 64,
        "layers": 32,
        "hidden": 3072,
        "heads": 32,
    }
    text = {"source": "made", "model": "GPT", "gpu": "A100", "precision": "fp16", "act_ckpt": "full", "seq": "2048"}
    return {**{name: str(value) for name, value in sizes.items()}, **text, "iter_s": str(step_s)}


def made() -> list[tuple[dict[str, str], Row]]:
    """Return rows with times that the model predicts for other constants."""
    found: list[tuple[dict[str, str], Row]] = []
    for tp, pp, dp in LAYOUTS:
        for mbs in (1, 2, 4):
            row = read_row(columns(tp, pp, dp, mbs))
            step_s = step_time(row.work, row.cluster, row.plan, TRUTH).step_s
            text = columns(tp, pp, dp, mbs, step_s)
            found.append((text, read_row(text)))
    return found


def test_a_fit_predicts_unseen_rows() -> None:
    rows = [row for _, row in made()]
    constants = fit(rows[::2])
    for row in rows[1::2]:
        assert row.step_s is not None
        assert step_time(row.work, row.cluster, row.plan, constants).step_s == pytest.approx(row.step_s, rel=0.04)


def test_one_outlier_does_not_change_a_fit() -> None:
    rows = [row for _, row in made()]
    corrupted = [*rows[1:], replace(rows[0], step_s=100 * (rows[0].step_s or 1))]
    constants = fit(corrupted)
    step_s = step_time(rows[5].work, rows[5].cluster, rows[5].plan, constants).step_s
    assert step_s == pytest.approx(rows[5].step_s, rel=0.06)


def test_undetermined_constants_keep_their_prior_and_stay_in_bounds() -> None:
    constants = fit([row for _, row in made()])
    assert constants.narrow == pytest.approx(Constants().narrow)
    assert constants.reserved_gb == Constants().reserved_gb
    for each in (constants, FITTED):
        for name, within in RANGES.items():
            assert within.low * 0.999 <= getattr(each, name) <= within.high * 1.001, name


def test_the_commands_repeat_a_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = [text for text, _ in made()]
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    for path, part in ((train, table[::2]), (test, [*table[1::2], {**table[0], "tp": "five"}])):
        with path.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(table[0]))
            writer.writeheader()
            writer.writerows(part)
    constants, answer = tmp_path / "c.json", tmp_path / "a.json"
    monkeypatch.setattr("sys.argv", ["fit", str(train), "--out", str(constants)])
    fitting.main()
    monkeypatch.setattr("sys.argv", ["evaluate", str(test), "--json", str(answer), "--constants", str(constants)])
    evaluating.main()
    document = json.loads(answer.read_text())
    assert document["mape"]["all"] < 0.04
    assert document["mape"]["by_source"].keys() == {"made"}
    assert document["refused"] == [{"row": 13, "source": "made", "reason": "tp must be a number, got 'five'"}]
    first = document["rows"][0]
    assert first["predicted"].keys() == {"step_s", "tok_s_gpu", "tflops_gpu", "mfu_pct", "mem_gb"}
    assert first["error"] == pytest.approx(abs(first["predicted"]["step_s"] / first["measured"]["step_s"] - 1))
    assert first["fits"] is True
    assert "12 rows evaluated, 1 refused" in capsys.readouterr().out


def test_constants_do_not_depend_on_the_evaluated_rows() -> None:
    one = [text for text, _ in made()]
    other = [{**text, "iter_s": str(3 * float(text["iter_s"]))} for text in one]
    predicted = [[row["predicted"] for row in evaluate(table)["rows"]] for table in (one, other)]
    assert predicted[0] == predicted[1]


def test_constants_round_trip_and_invalid_text_is_refused() -> None:
    assert from_json(TRUTH.to_json()) == TRUTH
    for text, reason in (
        ("[]", "object"),
        ('{"magic": 1}', "unknown constant 'magic'"),
        ('{"matmul": -1}', "positive"),
    ):
        with pytest.raises(ValueError, match=reason):
            from_json(text)
