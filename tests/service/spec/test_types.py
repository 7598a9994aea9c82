"""Switches and durations in YAML."""

import pytest
import yaml

from regroup.service.domain.errors import SpecError
from regroup.service.spec.job import parse_spec

SPEC = """
name: t
workload: {kind: builtin, data: {train: [/x]}}
training: {global_batch: 4, micro_batch: 1, sequence: 8, steps: 3, compile: off}
snapshot: {mirror: off}
recovery: {hang: {after: off}}
"""


def test_a_bare_off_means_off_although_yaml_reads_it_as_false() -> None:
    spec = parse_spec(yaml.safe_load(SPEC))
    assert spec.training is not None
    assert (spec.training.compile, spec.snapshot.mirror, spec.recovery.hang.after) == ("off", "off", "off")


def test_a_bare_on_is_refused() -> None:
    with pytest.raises(SpecError, match=r"snapshot\.mirror"):
        parse_spec(yaml.safe_load(SPEC.replace("mirror: off", "mirror: on")))
