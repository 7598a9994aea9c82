"""Types of the parameters of tools, with their bounds and descriptions."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from regroup.api.schemas.identities import Subject
from regroup.service.spec.types import MAX_DURATION_S, MAX_RANKS, Line, parse_seconds
from regroup.service.spec.types import Name as ProjectName

MAX_PAGE = 100

Job = Annotated[
    str,
    Field(min_length=1, max_length=64, description="Id or name of a job; of a name, the live job or the newest"),
]
Project = Annotated[ProjectName, Field(description="Project in which the name of the job is looked up")]
OneProject = Annotated[ProjectName, Field(description="Name of a project")]
InProject = Annotated[ProjectName | None, Field(description="Only this project; null for all that you see")]
Node = Annotated[str, Field(min_length=1, max_length=256, description="Name or id of a node")]
Reason = Annotated[Line, Field(min_length=1, max_length=200, description="Reason for people, shown with the object")]
Count = Annotated[int, Field(ge=1, le=MAX_PAGE, description="Largest number of entries")]
Cursor = Annotated[
    str | None, Field(max_length=2000, description="`next_cursor` of the answer before; null for the first page")
]
Rank = Annotated[int, Field(ge=0, lt=MAX_RANKS, description="Number of a rank")]
Step = Annotated[int, Field(ge=0, lt=2**53, description="Number of a step")]
Generation = Annotated[int | None, Field(ge=1, lt=2**31, description="Number of a generation; null for the newest")]
IncidentNumber = Annotated[int, Field(ge=1, lt=2**31, description="Number of an incident; the oldest is 1")]
Offset = Annotated[int, Field(ge=0, lt=2**53, description="Number of bytes to skip, as `next_offset` says")]
Time = Annotated[float | None, Field(ge=0, lt=2**40, description="Unix seconds; null for no limit")]
_DURATION_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "number", "minimum": 1, "maximum": MAX_DURATION_S},
        {"type": "string", "maxLength": 40, "pattern": r"^[0-9.]+ ?[smhd]$"},
    ],
    "description": "Seconds, or a text such as 15m, 2h or 3d",
}
Seconds = Annotated[
    float,
    Field(ge=1, le=MAX_DURATION_S, description="Seconds, or a text such as 15m, 2h or 3d"),
    BeforeValidator(parse_seconds),
    WithJsonSchema(_DURATION_SCHEMA),
]
Spec = Annotated[
    dict[str, Any],
    Field(max_length=200, description="Job spec as JSON; the resource regroup://spec/schema has its schema"),
]
SpecChanges = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=300)], Any],
    Field(max_length=50),
]
HookId = Annotated[str, Field(min_length=1, max_length=100, description="Id of a hook")]
Person = Annotated[Subject, Field(description="Name of a person or service account")]
RoleName = Literal["viewer", "editor", "admin"]
Metric = Annotated[str, Field(min_length=1, max_length=100)]
