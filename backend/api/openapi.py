"""The OpenAPI document: what FastAPI knows, plus problems, the run's own schema and how to authenticate."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from backend import contract
from backend.api.problems import MEDIA_TYPE

PROBLEM = {
    "type": "object",
    "description": "Problem details (RFC 9457)",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
    "additionalProperties": True,
}
PROBLEM_CONTENT = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
# Every route can refuse; what each status means is the same everywhere.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "Refused; the document says what was wrong", "content": PROBLEM_CONTENT},
    "5XX": {"description": "Failed; trying again may help", "content": PROBLEM_CONTENT},
}


def install(app: FastAPI) -> None:
    """Replace the application's document by the completed one, built once on the first request."""

    def openapi() -> dict[str, Any]:
        if not app.openapi_schema:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title="Tidemark", version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = PROBLEM
    for name, schema in _run_schemas().items():
        schemas[name] = schema
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}, {}]
    return document


def _run_schemas() -> dict[str, Any]:
    """The run's JSON Schema with its parts as components: `Run` and `RunPart_…`."""
    schema = contract.schema()
    parts: dict[str, Any] = schema.pop("$defs", {})
    schema.pop("$id", None)
    schema.pop("$schema", None)
    renamed = {f"RunPart_{name}": part for name, part in parts.items()}
    return {
        "RunDocument": _moved(schema),
        **{name: _moved(part) for name, part in renamed.items()},
    }


def _moved(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: value.replace("#/$defs/", "#/components/schemas/RunPart_")
            if key == "$ref" and isinstance(value, str)
            else _moved(value)
            for key, value in schema.items()
        }
    return [_moved(item) for item in schema] if isinstance(schema, list) else schema
