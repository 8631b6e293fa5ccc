"""Loads a project's own implementation: `module:attribute` from the checkout that is the current directory."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any


class PluginError(ValueError):
    """The implementation cannot be used: what was wrong, and what is accepted."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded implementation, and its module for optional companions beside it."""

    entry: str
    function: Any
    module: ModuleType

    def companion(self, name: str) -> Any | None:
        """A further attribute of the same module, e.g. `optimizer`, or None."""
        return getattr(self.module, name, None)


def load_plugin(entry: str, *, from_checkout: bool) -> Plugin:
    """Imports `module:attribute`; with `from_checkout` the current directory comes first on the module path."""
    module_name, separator, attribute = entry.partition(":")
    if not separator or not module_name or not attribute:
        raise PluginError(f"implementation '{entry}' is not module:attribute, e.g. loom.model:build")
    if from_checkout and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            here = os.path.basename(os.getcwd())
            raise PluginError(
                f"implementation '{entry}': no module '{error.name}' below {here}/ or installed"
            ) from error
        raise
    function = getattr(module, attribute, None)
    if not callable(function):
        public = ", ".join(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
        what = "is not callable" if hasattr(module, attribute) else "does not exist"
        raise PluginError(
            f"implementation '{entry}': '{attribute}' {what} in {module_name}; it has: {public or 'nothing callable'}"
        )
    return Plugin(entry, function, module)
