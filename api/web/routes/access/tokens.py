"""/v1/tokens: create, list and revoke tokens of the API."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from regroup.api.schemas.identities import IssuedToken, NewToken, Subject, Token, TokenList
from regroup.api.web.operation import OperationRoute, secret_response
from regroup.api.web.problems import responses
from regroup.api.web.routes.dependencies import ForEveryone, TheServices
from regroup.service.operations.access.authorization import Sender
from regroup.service.operations.access.identities import TokenRequest

TokenId = Annotated[str, Path(max_length=64, description="Id of the token")]
Caller = Annotated[Sender, Depends(ForEveryone("limits tokens to those of identities that the sender manages"))]
router = APIRouter(route_class=OperationRoute, prefix="/v1/tokens", tags=["tokens"], responses=responses())


@router.post("", status_code=201, responses=responses("body_too_large", "malformed_json"))
@secret_response
async def create(new: NewToken, services: TheServices, sender: Caller) -> IssuedToken:
    """Create a token, for yourself or for an identity that you manage. Its value is shown only in this answer."""
    request = TokenRequest(new.name, new.subject, new.project, new.role, new.expires_in_s)
    issued = await services.identities.create_token(sender, request)
    return IssuedToken(**Token.model_validate(issued.row).model_dump(), value=issued.value)


@router.get("")
async def list_(
    services: TheServices,
    sender: Caller,
    subject: Annotated[
        Subject | None, Query(description="Tokens of this identity; of all that you manage if absent")
    ] = None,
) -> TokenList:
    """List tokens with their last use, the newest first."""
    rows = await services.identities.tokens(sender, subject)
    return TokenList(tokens=[Token.model_validate(row) for row in rows])


@router.delete("/{token}")
async def revoke(token: TokenId, services: TheServices, sender: Caller) -> Token:
    """Revoke a token. Requests with it are refused at once."""
    return Token.model_validate(await services.identities.revoke_token(sender, token))
