from regroup.service.domain.environment_variables import VARIABLES, unknown_variables


def test_unknown_variables_come_with_the_nearest_known_name() -> None:
    present = ["PATH", "REGROUP_PORT", "REGROUP_SERVR", "REGROUP_X", "REGROUP_TEST_SESSION", *VARIABLES]
    assert unknown_variables(present, ["REGROUP_PORT"]) == [("REGROUP_SERVR", "REGROUP_SERVER"), ("REGROUP_X", None)]
