"""Wire models of hooks and of their deliveries."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

from regroup.api.schemas.wire import Wire
from regroup.service.domain.credentials.webhook_signature import SECRET_FORM, is_secret
from regroup.service.domain.hooks import DEFAULT_EVENTS, DeliveryState, HookKind
from regroup.service.spec.types import LABEL_NAME, Line, check_line

HookName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(check_line)]
Url = Annotated[str, Field(min_length=1, max_length=2000)]
Recipients = Annotated[list[Annotated[str, Field(min_length=3, max_length=320)]], Field(max_length=20)]
Events = Annotated[list[Annotated[str, Field(min_length=1, max_length=60)]], Field(min_length=1, max_length=50)]
LabelName = Annotated[str, Field(pattern=LABEL_NAME, min_length=1, max_length=128)]
Labels = Annotated[dict[LabelName, Line], Field(max_length=10)]


_FOUR = "[A-Za-z0-9+/]{4}"
_SECRET_PATTERN = (
    f"^whsec_(?:(?:{_FOUR}){{8,21}}|(?:{_FOUR}){{8,21}}[A-Za-z0-9+/][AQgw]==|"
    f"(?:{_FOUR}){{8,20}}[A-Za-z0-9+/]{{2}}[AEIMQUYcgkosw048]=)$"
)
"""Form of a secret in the schema of the API: 24 to 64 bytes in Base64. `_check_secret` checks it."""


def _check_secret(value: SecretStr) -> SecretStr:
    """Check the form of a secret. The message contains no part of it."""
    if not is_secret(value.get_secret_value()):
        raise PydanticCustomError("signing_secret", "must be {form}", {"form": SECRET_FORM})
    return value


_SECRET_SCHEMA: dict[str, Any] = {"pattern": _SECRET_PATTERN, "maxLength": len("whsec_") + 88}
SigningSecret = Annotated[SecretStr, Field(json_schema_extra=_SECRET_SCHEMA), AfterValidator(_check_secret)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class NewHook(_Body):
    """A hook to create."""

    name: HookName
    """Description, for people."""
    kind: HookKind = HookKind.CLOUDEVENTS
    """Receiver: a program (`cloudevents`), `slack`, `teams` or `email`."""
    url: Url | None = None
    """URL of the receiver, `https://…`. A hook of kind `email` has none."""
    recipients: Recipients = []
    """Addresses, for a hook of kind `email`."""
    events: Events = list(DEFAULT_EVENTS)
    """Types of events, for example `incident`, or states that a job enters, for example `state:FAILED`."""
    labels: Labels = {}
    """Labels that a job must have, all of them. Default: all jobs of the project."""
    secret: SigningSecret | None = None
    """Key of the signatures of `cloudevents`: `whsec_` and 24 to 64 bytes in Base64. Default: the server makes one."""
    is_enabled: bool = True
    """False if it gets no notifications yet."""


class HookRotation(_Body):
    """The next secret of a hook."""

    secret: SigningSecret | None = None
    """Key of the signatures: `whsec_` and 24 to 64 bytes in Base64. Default: the server makes one."""


class HookChange(_Body):
    """Changes of a hook. Fields that are absent stay as they are."""

    name: HookName | None = None
    """Description, for people."""
    url: Url | None = None
    """URL of the receiver. Notifications that wait go there, too."""
    recipients: Recipients | None = None
    """Addresses, for a hook of kind `email`. They replace the present ones."""
    events: Events | None = None
    """Types of events, or `state:STATE`. They replace the present ones."""
    labels: Labels | None = None
    """Labels that a job must have. They replace the present ones."""
    is_enabled: bool | None = None
    """False ends notifications. Those that wait are kept for five days."""


class Hook(Wire):
    """A hook of a project."""

    id: str
    """Id of the hook."""
    project: str
    """Name of the project."""
    name: str
    """Description, for people."""
    kind: HookKind
    """Receiver: `cloudevents`, `slack`, `teams` or `email`."""
    url: str | None
    """URL of the receiver without its secrets: the query is hidden, and the path of a chat's URL; null for e-mail."""
    recipients: list[str]
    """Addresses of e-mail."""
    events: list[str]
    """Types of events, or `state:STATE`."""
    labels: dict[str, str]
    """Labels that a job must have."""
    is_enabled: bool
    """False if it gets no notifications."""
    etag: str
    """Entity tag of this state: `If-Match` compares it before a change."""
    created_at: float
    """Unix seconds."""
    created_by: str
    """Name of the identity that created it."""
    former_until: float | None
    """Time until which notifications are also signed with the secret before the last rotation, Unix seconds."""


class IssuedHook(Hook):
    """A hook with its new secret, which the server does not show again."""

    secret: str | None
    """Key of the signatures, `whsec_…`, if the server made it. Null if the request contained it, and for a kind that is
    not signed."""


class HookList(BaseModel):
    """Hooks of a project, the oldest first."""

    hooks: list[Hook]
    """The hooks."""


class Delivery(Wire):
    """A delivery of one event to a hook."""

    id: int
    """Id of the delivery. Later ones have higher ids."""
    hook_id: str
    """Id of the hook."""
    message_id: str
    """Id of the message, `webhook-id`. It is the same in all attempts and in redeliveries."""
    type: str
    """Type of the event; `test` for a test."""
    job_id: str | None
    """Id of the job; null for a test."""
    job_name: str
    """Name of the job; empty for a test."""
    number: int
    """Number of the event in the history of the job."""
    state: DeliveryState
    """State: an attempt follows (`pending`), the receiver accepted it (`delivered`), or it has `failed`."""
    attempts: int
    """Number of attempts so far."""
    created_at: float
    """Time of the transaction of the event, Unix seconds."""
    next_attempt_at: float | None
    """Time of the next attempt, Unix seconds; null if none follows."""
    attempted_at: float | None
    """Begin of the last attempt, Unix seconds."""
    finished_at: float | None
    """Time at which it was delivered or failed, Unix seconds."""
    status_code: int | None
    """HTTP status of the last attempt."""
    duration_s: float | None
    """Duration of the last attempt, in seconds; null while it is in progress."""
    error: str
    """Problem of the last attempt; empty if there is none."""
    redelivery_of: int | None
    """Id of the delivery that this one repeats."""


class DeliveryPage(BaseModel):
    """Deliveries, newest first."""

    deliveries: list[Delivery]
    """The deliveries of this page."""
    next_page_token: str
    """Token of the next page; empty on the last one."""
