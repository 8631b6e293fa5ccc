"""Query parameters that a route doesn't know are refused: a mistyped filter would silently return everything."""

import difflib

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from backend.services.base.errors import InvalidContent, shown


async def only_known_parameters(request: Request) -> None:
    """Refuses (422) a query that names a parameter which the route doesn't have, and says which it has."""
    if not request.query_params:
        return
    accepted = _accepted_by(request.scope["route"])
    unknown = [name for name in request.query_params if name not in accepted]
    if unknown:
        raise InvalidContent(
            "; ".join(_refused(name, accepted) for name in unknown[:3]),
            errors=[
                {
                    "path": f"query.{shown(name)[1:-1]}",
                    "message": _refused(name, accepted),
                    "value": shown(request.query_params[name]),
                }
                for name in unknown
            ],
        )


def _accepted_by(route: APIRoute) -> tuple[str, ...]:
    return tuple(sorted(_parameters_of(route.dependant)))


def _parameters_of(dependant: Dependant) -> set[str]:
    deeper = (_parameters_of(each) for each in dependant.dependencies)
    return {parameter.alias for parameter in dependant.query_params}.union(*deeper)


def _refused(name: str, accepted: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, accepted, 1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return f"there is no parameter {shown(name)} here{meant}; accepted: {', '.join(accepted) or 'none'}"
