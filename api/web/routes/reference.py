"""/docs: the reference of the API as a page of the server itself. It loads nothing from other hosts."""

from importlib.resources import files
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse, Response

from regroup.api.web.access import PROOF_HEADER
from regroup.api.web.operation import OperationRoute
from regroup.api.web.routes.dependencies import ForEveryone
from regroup.api.web.session_storage import PROOF_KEY
from regroup.service.operations.access.authorization import Sender

Asset = Literal["swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"]
Reader = Annotated[Sender, Depends(ForEveryone("shows the reference, which is public"))]
POLICY = "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
"""Content Security Policy of the page: its own script starts Swagger UI, and images are from here."""
_ADD_PROOF = f"""(request) => {{
      const proof = localStorage.getItem("{PROOF_KEY}");
      if (proof !== null && new URL(request.url, location.href).origin === location.origin)
        request.headers["{PROOF_HEADER}"] = proof;
      return request;
    }}"""
"""Function that adds the proof of a browser's session to requests of the page."""
_MEDIA_TYPES: dict[str, str] = {"js": "text/javascript", "css": "text/css", "png": "image/png"}
_CACHED = {"Cache-Control": "private, max-age=86400"}
router = APIRouter(route_class=OperationRoute, prefix="/docs", include_in_schema=False)


@router.get("")
async def page(request: Request, sender: Reader) -> HTMLResponse:
    """Show all operations, with a form to try each."""
    root = str(request.scope.get("root_path", ""))
    shown = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title="regroup API",
        swagger_js_url=f"{root}/docs/swagger-ui-bundle.js",
        swagger_css_url=f"{root}/docs/swagger-ui.css",
        swagger_favicon_url=f"{root}/docs/favicon.png",
        swagger_ui_parameters={"docExpansion": "none", "filter": True, "displayRequestDuration": True},
    )
    begin = "SwaggerUIBundle({"  # the framework has no option for a function
    text = bytes(shown.body).decode().replace(begin, f"{begin}\n    requestInterceptor: {_ADD_PROOF},", 1)
    return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})


@router.get("/{asset}")
def asset(asset: Annotated[Asset, Path(description="Name of a file")], sender: Reader) -> Response:
    """Send a file of the page."""
    content = (files("fastapi_offline") / "static" / asset).read_bytes()
    return Response(content, media_type=_MEDIA_TYPES[asset.rpartition(".")[2]], headers=_CACHED)
