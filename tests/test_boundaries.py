"""Records cross process boundaries; untyped mappings do so only where this file gives a reason."""

from tests.support.checks.boundary_types import Untyped, untyped_mappings

ENCODED = "an encoded record: Ray carries the output of the codec"
FREE_FORM = "free-form by nature"

EXCEPTIONS = {
    ("service/ports/assignment.py", "PlannedChange.evidence"): f"{FREE_FORM}: facts of an incident for people",
    ("service/ports/start_config.py", "stored_incidents"): f"{ENCODED}: IncidentRevised events of the database",
    ("service/ports/sync.py", "SupervisorEvent.data"): f"{ENCODED}: one of `service/domain/job_events.py`",
    ("service/ports/sync.py", "SupervisorStatus.ranks"): f"{ENCODED}: `service/domain/rank_reports.py`",
    ("service/ports/sync.py", "SupervisorStatus.incident"): f"{ENCODED}: an IncidentRevised event",
    ("service/ray_adapter/supervisor_actor.py", "SupervisorActor.agents"): f"{FREE_FORM}: status for people and tests",
    ("service/ray_adapter/supervisor_actor.py", "SupervisorActor.read_log"): f"{ENCODED}: LogChunk",
    ("service/ray_adapter/supervisor_actor.py", "SupervisorActor.report"): f"{ENCODED}: AgentReport",
    ("service/ray_adapter/supervisor_actor.py", "SupervisorActor.stacks"): f"{ENCODED}: rank → RankStack",
    ("service/ray_adapter/supervisor_actor.py", "SupervisorActor.sync"): f"{ENCODED}: SyncRequest and SyncReply",
    ("service/supervisor/supervisor.py", "Supervisor.agents"): f"{FREE_FORM}: status for people and tests",
    ("service/supervisor/supervisor.py", "Supervisor.read_log"): f"{ENCODED}: LogChunk",
    ("service/supervisor/supervisor.py", "Supervisor.report"): f"{ENCODED}: AgentReport",
    ("service/supervisor/supervisor.py", "Supervisor.stacks"): f"{ENCODED}: rank → RankStack",
    ("service/supervisor/supervisor.py", "Supervisor.sync"): f"{ENCODED}: SyncRequest and SyncReply",
    (
        "workers/agent/agent.py",
        "NodeAgent.finish_checkpoint",
    ): f"{FREE_FORM}: `part` of SavedShards",
    ("workers/agent/standby.py", "StandbyAgent.adopt"): f"{ENCODED}: AgentConfig",
    ("workers/contract/agent_api.py", "AgentApi.finish_checkpoint"): f"{FREE_FORM}: `part` of SavedShards",
    ("workers/contract/agent_config.py", "AgentConfig.warmup"): f"{ENCODED}: WarmupConfig, read in the zygote",
    ("workers/contract/agent_records.py", "AgentStatus.messages"): f"{ENCODED}: messages of ranks",
    ("workers/contract/agent_records.py", "DataSources.recipe"): f"{ENCODED}: Recipe of `workers/data/prepare`",
    (
        "workers/contract/agent_records.py",
        "RankInspection.collectives",
    ): f"{FREE_FORM}: torch's flight recorder",
    (
        "workers/contract/agent_records.py",
        "SavedShards.part",
    ): f"{FREE_FORM}: metadata of torch DCP",
    ("workers/contract/agent_records.py", "SourceListing.files"): f"{FREE_FORM}: file → size or digest",
    ("workers/contract/agent_wire.py", "Signature.arguments"): f"{ENCODED}: the codec of the agent's API itself",
    ("workers/contract/agent_wire.py", "Signature.parameters"): f"{ENCODED}: the codec of the agent's API itself",
    ("workers/contract/agent_wire.py", "value_of"): f"{ENCODED}: the codec of the agent's API itself",
    ("workers/contract/checkpoint_manifest.py", "used_files"): f"{ENCODED}: the manifest of a checkpoint",
    ("workers/contract/error_classes.py", "details_of"): f"{FREE_FORM}: details of an exception",
    ("workers/contract/messages.py", "AgentReport.messages"): f"{ENCODED}: messages of ranks, passed on unread",
    ("workers/contract/messages.py", "Done.result"): f"{FREE_FORM}: the result of a user's training function",
    ("workers/contract/messages.py", "Failed.collectives"): f"{FREE_FORM}: torch's flight recorder",
    ("workers/contract/messages.py", "Join.dataset"): f"{FREE_FORM}: the document of prepared data, read by its kind",
    ("workers/contract/messages.py", "Note.data"): f"{FREE_FORM}: facts of a note for people",
    ("workers/contract/messages.py", "check_version"): f"{ENCODED}: reads the version before decoding",
    ("workers/contract/rank_config.py", "RankConfig.args"): f"{FREE_FORM}: arguments of a user's training function",
    ("workers/contract/rank_config.py", "RankConfig.model"): f"{FREE_FORM}: options that each model family validates",
    (
        "workers/contract/rank_starts.py",
        "RankStarts.dataset",
    ): f"{FREE_FORM}: the document of prepared data, as in Join",
    ("workers/contract/rank_error.py", "RankError.details"): f"{FREE_FORM}: details of an exception",
}
"""(file, name) of an untyped mapping at a process boundary → reason."""


def test_untyped_mappings_at_boundaries_are_listed_with_a_reason() -> None:
    found = {(each.path, each.name) for each in untyped_mappings()}
    assert sorted(found - EXCEPTIONS.keys()) == [], "use a record, or list it here with a reason"
    assert sorted(EXCEPTIONS.keys() - found) == [], "remove exceptions that no longer apply"


def test_the_search_finds_fields_parameters_and_results() -> None:
    found = untyped_mappings()
    assert Untyped("workers/contract/messages.py", "Note.data", "dict[str, Any]") in found
    assert Untyped("workers/contract/agent_wire.py", "value_of", "Mapping[str, Any]") in found
    assert Untyped("service/supervisor/supervisor.py", "Supervisor.stacks", "dict[str, Any]") in found
