"""`data.prepare` of a spec: legal combinations, and errors that name the field."""

from typing import Any

import pytest

from regroup.service.domain.errors import SpecError
from regroup.service.spec.data_preparation import PreparedData
from regroup.service.spec.job import JobSpec, parse_spec
from regroup.service.spec.workload import BuiltinWorkload, FunctionWorkload, TextData

PREPARE = {"format": "jsonl", "train": ["/data"]}


def builtin(data: dict[str, Any], **training: Any) -> JobSpec:
    return parse_spec(
        {
            "name": "x",
            "workload": {"kind": "builtin", "data": data},
            "training": {"global_batch": 4, "micro_batch": 2, "sequence": 8, "steps": 1, **training},
        }
    )


def function(**prepare: Any) -> JobSpec:
    data = {"prepare": {**PREPARE, **prepare}}
    return parse_spec(
        {
            "name": "x",
            "workload": {"kind": "function", "function": "a:b", "data": data},
            "training": {"global_batch": 4, "micro_batch": 2, "steps": 1},
        }
    )


def issues(error: SpecError) -> dict[str, str]:
    return {issue.path: issue.message for issue in error.issues}


def test_text_and_preparation_are_distinguished() -> None:
    for data, kind in (({"train": ["/data"]}, TextData), ({"prepare": PREPARE}, PreparedData)):
        workload = builtin(data).workload
        assert isinstance(workload, BuiltinWorkload) and isinstance(workload.data, kind)
        restored = JobSpec.model_validate(builtin(data).model_dump(mode="json"))
        assert restored == builtin(data)


def test_a_recipe_has_the_sequence_of_the_trainer_and_the_code_of_a_function() -> None:
    workload = builtin({"prepare": PREPARE}).workload
    assert isinstance(workload, BuiltinWorkload) and isinstance(workload.data, PreparedData)
    recipe = workload.data.recipe(8, code="sha256:x", python="p", reads="tokens")
    assert (recipe["sequence"], recipe["code"], recipe["reads"]) == (8, "", "tokens")
    workload = function(function="a:make").workload
    assert isinstance(workload, FunctionWorkload) and workload.data is not None
    recipe = workload.data.recipe(None, code="sha256:x", python="p", reads="")
    assert (recipe["code"], recipe["python"]) == ("sha256:x", "p")


@pytest.mark.parametrize(
    ("prepare", "path", "message"),
    [
        ({"format": "csv"}, "workload.data.prepare.format", "'jsonl'"),
        ({"trian": []}, "workload.data.prepare.trian", "unknown field"),  # codespell:ignore trian
        ({"train": []}, "workload.data.prepare.train", "at least 1"),
        ({"function": "make"}, "workload.data.prepare.function", "must have the form"),
        ({"function": "a:b", "field": "body"}, "workload.data.prepare", "field is not used with function"),
        ({"function": "a:b", "tokenizer": "/t.json"}, "workload.data.prepare", "tokenizer is not used with function"),
        ({"batch_rows": 3}, "workload.data.prepare", "batch_rows requires function"),
    ],
)
def test_a_wrong_field_is_named(prepare: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        builtin({"prepare": {**PREPARE, **prepare}})
    assert message in issues(error.value)[path]


def test_a_wrong_field_of_text_is_named_without_its_tag() -> None:
    with pytest.raises(SpecError) as error:
        builtin({"train": ["/data"], "tokeniser": "byte"})
    assert issues(error.value) == {"workload.data.tokeniser": "unknown field"}


def test_the_sequences_of_training_and_preparation_agree() -> None:
    builtin({"prepare": {**PREPARE, "sequence": 8}})
    with pytest.raises(SpecError, match=r"sequence 8 differs from workload\.data\.prepare.sequence 16"):
        builtin({"prepare": {**PREPARE, "sequence": 16}})
    with pytest.raises(SpecError, match="sequence is required"):
        function()
    function(sequence=16)
