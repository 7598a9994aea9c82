"""Ranks that train on prepared records: as on a token file of the same text, and by record in a function's loop."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from regroup.workers.contract.error_classes import DataError
from regroup.workers.contract.rank_config import RankConfig, TrainingConfig
from regroup.workers.data.prepare.preparation import summary
from regroup.workers.data.record_files import RecordFiles
from regroup.workers.data.record_stream import RecordStream
from tests.support.inputs.data_inputs import prepared, recipe
from tests.support.inputs.rank_configs import changed, fault

FUNCTION = "regroup.workers.rank.user_function:train"


@pytest.fixture
def records(dataset: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """The text of the token file, prepared."""
    files = json.loads((Path(dataset["directory"]) / "meta.json").read_text())["files"]
    data = recipe(files["train"][0], "text", validation=files["validation"], reads="tokens")
    meta = prepared(data, tmp_path / "out")
    return {**summary(meta), "directory": str(tmp_path / "out" / meta["fingerprint"])}


def test_training_is_that_of_a_token_file_of_the_same_text(
    agent: Any, config: RankConfig, records: dict[str, Any]
) -> None:
    whole = agent.run(config, 2, "tokens")
    assert whole.codes == [0, 0]
    same = agent.run(config, 2, "records", dataset=records)
    assert same.result == whole.result
    assert same.losses == whole.losses
    assert [row["validation_loss"] for row in same.rows] == [row["validation_loss"] for row in whole.rows]


@pytest.fixture
def loop(config: RankConfig) -> RankConfig:
    """A function that goes through `run.records`."""
    training = TrainingConfig(global_batch=16, micro_batch=2, steps=6)
    return changed(config, training=training, function="function_loops:of_records")


def test_a_function_continues_in_its_records(agent: Any, loop: RankConfig, records: dict[str, Any]) -> None:
    options: dict[str, Any] = {"entry": FUNCTION, "dataset": records}
    whole = agent.run(loop, 2, "of-records", **options)
    assert whole.codes == [0, 0]
    assert whole.result["length"] == records["records"]["train"]
    loop = changed(loop, faults=[fault(1, 4, "sigkill", "forward")])
    at = {"source": "memory", "step": 3, "generation": 1}
    for ranks in (2, 3):
        memory = f"of-records-{ranks}"
        faulty = agent.run(loop, 2, memory, show_errors=False, **options)
        assert faulty.codes[1] == -signal.SIGKILL
        resumed = {"generation": 2, "restore": at, "faults_fired": [0], "source_world": 2}
        again = agent.run(loop, ranks, memory, **resumed, **options)
        assert again.result["samples"] == whole.result["samples"]
        if ranks == 2:
            assert again.result == whole.result


def test_without_a_preparation_there_are_no_records(agent: Any, loop: RankConfig) -> None:
    ended = agent.run(loop, 1, "no-records", entry=FUNCTION, show_errors=False)
    assert "needs workload.data.prepare" in ended.of("Failed")[0]["error"]["message"]


def test_a_position_in_other_records_is_refused(records: dict[str, Any]) -> None:
    made = RecordStream(global_batch=4, micro_batch=2, seed=0, fingerprint=records["fingerprint"])
    other = RecordStream(global_batch=4, micro_batch=2, seed=0, fingerprint="other")
    with pytest.raises(DataError, match="resume with the same data and recipe"):
        other.load_state_dict(made.state_dict())
    made.load_state_dict(made.state_dict())


def test_records_of_several_files_are_one_list(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": f"{n:015}"}) + "\n" for n in range(30)))
    meta = prepared(recipe(str(tmp_path / "in.jsonl"), "jsonl", sequence=15), tmp_path / "out", unit_bytes=200)
    files = meta["splits"]["train"]["files"]
    found = RecordFiles(tmp_path / "out" / meta["fingerprint"], "train")
    assert len(files) > 2 and len(found) == sum(file["records"] for file in files)
    each = [found[[number]]["tokens"][0].tolist() for number in range(len(found))]
    assert found[list(reversed(range(len(found))))]["tokens"].tolist() == each[::-1]
