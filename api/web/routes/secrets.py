"""/v1/projects/{name}/secrets: secrets of a project, whose values no answer contains; and their key."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from regroup.api.schemas.secrets import Reencryption, Secret, SecretList, SecretValue
from regroup.api.web.operation import OperationRoute
from regroup.api.web.problems import responses, secret_request
from regroup.api.web.routes.dependencies import ForCluster, ForProject, TheSender, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.policy.access.roles import ClusterPermission, Permission
from regroup.service.spec import types

Reader = Annotated[str, Depends(ForProject(Permission.SECRETS_READ))]
Writer = Annotated[str, Depends(ForProject(Permission.SECRETS_WRITE))]
KeyOperator = Annotated[Sender, Depends(ForCluster(ClusterPermission.KEYS_WRITE))]
SecretName = Annotated[types.SecretName, Path(description="Name of the secret")]
router = APIRouter(route_class=OperationRoute, prefix="/v1", tags=["secrets"], responses=responses())


@router.get("/projects/{name}/secrets")
async def list_(name: Reader, services: TheServices) -> SecretList:
    """List the secrets of a project, by name. No answer contains a value."""
    rows = await services.secrets.secrets(name)
    return SecretList(secrets=[Secret.model_validate(row) for row in rows])


@router.get("/projects/{name}/secrets/{secret}")
async def get(name: Reader, secret: SecretName, services: TheServices) -> Secret:
    """Get a secret without its value."""
    return Secret.model_validate(await services.secrets.get(name, secret))


@router.put("/projects/{name}/secrets/{secret}", responses=responses("conflict", "body_too_large", "malformed_json"))
@secret_request
async def put(name: Writer, secret: SecretName, new: SecretValue, services: TheServices, sender: TheSender) -> Secret:
    """Create a secret, or replace its value.

    Jobs get a new value with the next generation of their ranks. Ranks that run keep the old one.
    """
    row = await services.secrets.set(sender, name, secret, new.value.get_secret_value())
    return Secret.model_validate(row)


@router.delete("/projects/{name}/secrets/{secret}", status_code=204)
async def delete(name: Writer, secret: SecretName, services: TheServices, sender: TheSender) -> None:
    """Delete a secret. Jobs that use it wait before they start. Ranks that run keep its value."""
    await services.secrets.delete(sender, name, secret)


@router.post("/secrets/reencrypt", responses=responses("conflict"))
async def reencrypt(services: TheServices, sender: KeyOperator) -> Reencryption:
    """Encrypt the stored secrets of all projects and hooks with the current key, up to 5,000 rows per request.

    Send the request again until `is_complete` is true. After that, no value needs a former key, unless `unreadable`
    is above 0.
    """
    return Reencryption.model_validate(await services.secrets.reencrypt(sender.author))
