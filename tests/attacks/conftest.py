"""What the attacks share. Each file says what an attacker tries, in the attacker's own terms, and what must come of it.

`untrusted` is a worker as a stranger's commit meets it: with the best protection that this machine gives its user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.worker.conftest import Bench, bench, broker, config, make_bench, repository, service, start_worker
from worker.config import Isolation, WorkerConfig
from worker.isolation.processes import Interrupt

__all__ = ["Bench", "bench", "broker", "config", "make_bench", "repository", "service", "start_worker", "untrusted"]


@pytest.fixture
def untrusted(make_bench: Callable[[WorkerConfig], Bench], config: WorkerConfig) -> Callable[..., dict[str, Any]]:
    """Runs a program as a commit of a project that nobody trusts; where nothing protects this machine from that, as one
    of a trusted project, so that the attack is tried all the same."""
    made = make_bench(replace(config, isolation=Isolation.AUTO, keep_setups_from_s=0.0))
    protected = made.job.sandbox.protects

    def attack(program: str, **other: Any) -> dict[str, Any]:
        made.interrupt = Interrupt()
        return made.run(program, **{"trusted": not protected} | other)

    attack.bench = made  # type: ignore[attr-defined]
    return attack
