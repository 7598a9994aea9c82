from regroup.api.cli.render.events import describe_event


def test_unknown_events_have_neither_reprs_nor_whole_ids() -> None:
    data = {"node": "ab" * 28, "ranks": {"ab" * 28: [0, 1]}, "why": None, "ratio": 0.123456, "is_low": True}
    assert describe_event("new", data) == 'node=abababab… ranks={"abababab…": [0, 1]} ratio=0.1235 is_low=true'


def test_an_incident_of_a_node_has_no_rank() -> None:
    assert describe_event("incident", {"cause": "node silent", "rank": None, "at_step": 7}) == "node silent at step 7"
    assert describe_event("incident", {"cause": "hang", "rank": 0, "at_step": 7}) == "hang rank 0 at step 7"
