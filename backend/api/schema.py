"""The contract, published: what `tidemark.run/1` is, as JSON Schema."""

from typing import Any

from backend import contract
from backend.api.responses import Json
from backend.routing import Router

router = Router(tags=["service"])


@router.get("/schema/run.json", response_model=dict[str, Any])
async def run_schema() -> Any:
    """JSON Schema (draft 2020-12) of a run."""
    return Json(contract.schema())
