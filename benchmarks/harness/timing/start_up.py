"""Makes a measuring process start quickly and lie quietly in memory."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

_COMPILER = "torch._dynamo"


class _CompilerWhenNeeded(ModuleType):
    """Takes the place of torch's compiler until something needs more of it than eager code does.

    Then it gives way to the real module.
    """

    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)
    """A process group clears the rules that the compiler keeps; without a compiler there are none."""

    def graph_break(self, msg: str = "") -> None:
        """Outside of a compiled region the real one does nothing either."""

    def __getattr__(self, name: str) -> Any:
        # Tools that walk over all modules ask for `__file__`; only an import of a part (`__path__`) means business.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        return getattr(_real_compiler(self), name)


def _real_compiler(placeholder: ModuleType) -> ModuleType:
    if sys.modules.get(_COMPILER) is placeholder:
        del sys.modules[_COMPILER]
        vars(torch).pop("_dynamo", None)
    return importlib.import_module(_COMPILER)


def spare_the_compiler_import() -> None:
    """Keeps torch from importing its compiler, 0.9 s of every fresh process, where nothing is compiled.

    Optimizers and process groups import it only to say "break the graph here", "do not trace this" and "forget your
    rules". The first and the last are answered by a placeholder, the second by filling the cache of the decorator that
    guards some methods. Where a torch release has none of them, nothing happens but a slower start; code that really
    compiles gets the real module.
    """
    if _COMPILER in sys.modules:
        return
    for method in vars(torch.optim.Optimizer).values():
        inner = getattr(method, "__wrapped__", None)
        if inner is not None:
            inner.__dynamo_disable = inner
    placeholder = _CompilerWhenNeeded(_COMPILER)
    sys.modules[_COMPILER] = placeholder
    setattr(torch, "_dynamo", placeholder)  # noqa: B010 -- the checker knows only the real module by this name


def use_one_thread() -> None:
    """One thread: on a shared CPU two threads spin for each other and are several times slower than one."""
    torch.set_num_threads(1)


def forget_compiled() -> None:
    """Drops what was compiled for the check's reduced sizes.

    Else the compiler would meet the timed sizes as a second shape, and time code for any shape instead of for these.
    """
    compiler = sys.modules.get(_COMPILER)
    if compiler is not None and not isinstance(compiler, _CompilerWhenNeeded):
        compiler.reset()


def graphs_compiled() -> int:
    """How many graphs torch's compiler has made in this process so far; zero where it was never asked."""
    compiler = sys.modules.get(_COMPILER)
    if compiler is None or isinstance(compiler, _CompilerWhenNeeded):
        return 0
    return int(importlib.import_module(f"{_COMPILER}.utils").counters["stats"].get("unique_graphs", 0))
