"""JSON answers, encoded once: read models go straight through orjson, the declared schema only documents them."""

from typing import Any

from starlette.responses import Response

from backend.services.board.jsonable import dump


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dump(content)
