"""The questions of the joint detector: sessions over all series of a suite, requested once and read from then on."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from backend.regression.joint.terms import Ask, SessionResult
from backend.services.base.savepoints import apart
from backend.services.joint.reading import Columns, session_result
from backend.services.sessions import request as confirm
from backend.services.sessions.budget import budget_of
from backend.services.sessions.request import ALIVE, Purpose, SessionRequest
from backend.store.joint import incidents as store
from backend.store.joint.incidents import Question, Stretch
from backend.store.sessions import sessions as session_store

ROUNDS = 2
"""ABBA rounds: four processes per side, over all series."""


def follow_moved_commits(c: Connection, project_id: int, first: int, now: datetime) -> None:
    """From this position on, commits have moved: questions follow their commits, and those
    about lost commits are cancelled. A session is locked after the series and the project."""
    for session_id in store.renumber_questions(c, project_id, first):
        with apart(c, f"session {session_id}"):  # a worker may take it this very moment
            confirm.cancel(c, session_id, "its commits are on the default branch no more", now)


class Questions:
    """The questions of one project: stored ones are answered from the database, new ones become sessions.

    `since_run`: the run from which new questions may be asked; None: any.
    """

    def __init__(self, c: Connection, project_id: int, now: datetime, *, since_run: str | None) -> None:
        self.c, self.project_id, self.now, self.since_run = c, project_id, now, since_run
        self._stored = {(q.suite, q.after_run_id, q.number): q for q in store.questions(c, project_id)}
        self._asked: list[Stretch] = []

    def ask(self, ask: Ask, suite: str, after: str, number: int) -> Question | None:
        """The stored question, or a new one with its own session; None if no session is possible: no worker, or
        the day's budget is used up."""
        stored = self._stored.get((suite, after, number))
        if stored is not None:
            return stored
        if self.since_run is not None and after != self.since_run:
            return None
        where = Stretch(suite, ask.testbed, ask.base, ask.head)
        arms = store.arms(self.c, self.project_id, where, avoid=ask.avoid, alive_since=self.now - ALIVE)
        if arms is None or not budget_of(self.c, self.project_id, self.now).left:
            return None
        self._asked.append(where)
        request = SessionRequest(
            project_id=self.project_id,
            testbed_id=arms.testbed_id,
            suite=suite,
            purpose=Purpose.ATTRIBUTE,
            base_commit_id=arms.base_commit_id,
            head_commit_id=arms.head_commit_id,
            spec=arms.spec,
            requested_by="tidemark",
            base_setup={},
            head_setup={},
            avoid_worker_id=arms.avoid_worker_id,
            max_rounds=ROUNDS,
        )
        session_id = confirm.request_session(self.c, request, self.now)
        question_id = store.put_question(self.c, self.project_id, where, after=after, number=number, session=session_id)
        question = Question(
            id=question_id,
            suite=suite,
            testbed=ask.testbed,
            after_run_id=after,
            number=number,
            base_position=ask.base,
            head_position=ask.head,
            session_id=session_id,
            session_state="waiting",
            answered_after=None,
        )
        self._stored[suite, after, number] = question
        return question

    def give_way(self) -> None:
        """Cancel sessions of a single suspect that a new question answers as well. Must come last: a session is
        locked after the series and the project, as by a result that settles its suspect."""
        for where in self._asked:
            for session_id in store.same_question(self.c, self.project_id, where):
                with apart(self.c, f"session {session_id}"):  # a worker may take it this very moment
                    confirm.cancel(self.c, session_id, "a session over all series answers this as well", self.now)
        self._asked.clear()

    def is_answered(self, question: Question, read: AbstractSet[str], *, last: str | None) -> bool:
        """Whether the answer came before the next run to be read; `last`: that is the newest there is."""
        now = self._stored.get((question.suite, question.after_run_id, question.number))
        if now is None:
            return True  # its commits are gone, and nobody waits for it any more
        if now.answered_after is not None:
            return now.answered_after in read or last is not None
        if last is None or now.session_state in session_store.OPEN:
            return False
        store.answered(self.c, now.id, last)
        self._stored[now.suite, now.after_run_id, now.number] = replace(now, answered_after=last)
        return True

    def leave_unheard(self, suite: str, last: str, *, awaited: Question | None) -> None:
        """Mark answers without a matching question as read: a detector that started over asked something else."""
        store.leave_unheard(self.c, self.project_id, suite, last, awaited=0 if awaited is None else awaited.id)

    def answer(self, question: Question, columns: Columns) -> SessionResult | None:
        """The result of a question's session; None if it has none."""
        now = self._stored.get((question.suite, question.after_run_id, question.number))
        if now is None or now.session_state != "decided":
            return None
        turns = session_store.turns_of(self.c, now.session_id, with_documents=True)
        return session_result(columns, now.testbed, now.base_position, now.head_position, turns)
