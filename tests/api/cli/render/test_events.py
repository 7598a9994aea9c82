from regroup.api.cli.render.events import describe_event


def test_unknown_events_have_neither_reprs_nor_whole_ids() -> None:
    data = {"node": "ab" * 28, "ranks": {"ab" * 28: [0, 1]}, "why": None, "ratio": 0.123456, "is_low": True}
    assert describe_event("new", data) == 'node=abababab… ranks={"abababab…": [0, 1]} ratio=0.1235 is_low=true'


def test_an_incident_of_a_node_has_no_rank() -> None:
    assert describe_event("incident", {"cause": "node silent", "rank": None, "at_step": 7}) == "node silent at step 7"
    assert describe_event("incident", {"cause": "hang", "rank": 0, "at_step": 7}) == "hang rank 0 at step 7"


def test_a_restore_shows_what_moved_and_the_memory_of_its_node() -> None:
    data = {
        "kind": "state_restored", "node": "local-1", "fetched_bytes": 1000, "minimum_bytes": 1000, "copied_bytes": 3000,
        "received_bytes": 2000, "own_bytes": 4000, "memory_bytes": 5000, "seconds": 0.25,
    }  # fmt: skip
    expected = "local-1 restored in 0.25 s: 2 kB received, 1 kB needed from elsewhere, memory 5 kB, shards 4 kB"
    assert describe_event("note", data) == expected


def test_a_checkpoint_shows_how_much_of_it_is_new() -> None:
    saved = {"step": 8, "size_bytes": 2000}
    assert describe_event("checkpoint", saved) == "step 8"
    assert describe_event("checkpoint", {**saved, "written_bytes": 512}) == "step 8: 512 B written of 2 kB"
