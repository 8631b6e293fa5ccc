"""The user of a run: an account that may be used, or a spare user id that one worker at a time has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.config import Isolation
from worker.isolation import run_users
from worker.isolation.protection import establish
from worker.isolation.run_users import FIRST_RUN_UID, RUN_UIDS, account, claim_spare_user

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start code as another user")


@needs_root
def test_two_workers_of_a_machine_have_different_users(tmp_path: Path) -> None:
    one, other = (establish(Isolation.AUTO, None, tmp_path) for _ in range(2))
    assert one.user and other.user and one.user.uid != other.user.uid


def test_a_claimed_user_id_is_nobody_elses_until_the_claim_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_users, "CLAIMS", tmp_path / "claims")
    one, claim = claim_spare_user(tmp_path)
    assert one.exclusive and FIRST_RUN_UID <= one.uid < FIRST_RUN_UID + RUN_UIDS
    other, others = claim_spare_user(tmp_path)
    assert other.uid != one.uid
    claim.close()
    again, renewed = claim_spare_user(tmp_path)
    assert again.uid == one.uid
    for each in (others, renewed):
        each.close()


def test_the_next_user_id_after_a_given_one_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_users, "CLAIMS", tmp_path / "claims")
    one, claim = claim_spare_user(tmp_path)
    claim.close()
    other, renewed = claim_spare_user(tmp_path, after=one.uid)
    renewed.close()
    assert other.uid != one.uid


@pytest.mark.parametrize(("name", "reason"), [("nobody-of-that-name", "has no user"), ("root", "root itself")])
def test_an_account_that_cannot_be_used_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        account(name)
