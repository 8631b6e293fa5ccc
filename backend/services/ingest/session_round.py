"""A round of a session arrives: store its arms, evaluate the sequential test, and act on the result.

Either more rounds follow, or the session ends: confirmed and withdrawn become part of the history of each series;
undecided and failed leave the suspect to the following commits. A round on a machine that changed is kept, not counted,
and repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, RowMapping

from backend.regression.change_points import ChangeEvent
from backend.regression.confirmation import Decision
from backend.regression.regression_events import SessionDecided
from backend.regression.restatements import of_events
from backend.services.base.confine import confine, require_deliverer, scope_of_deliverer
from backend.services.base.errors import Conflict, NotFound
from backend.services.base.principal import Principal, require_no_workflow
from backend.services.ingest.claims import check_worker_name
from backend.services.ingest.round_body import Round, parse_round
from backend.services.ingest.session_metrics import SessionMetric, judged, metrics_of_round, metrics_so_far, row_of
from backend.services.judging.replay import conclude as conclude_state
from backend.services.judging.state_cache import save_states, states_of
from backend.services.judging.stored_runs import StoredRuns
from backend.services.queue.dispatch import lease_hash, publish_run
from backend.services.regressions import apply, ledger
from backend.services.sessions.request import MOST_SPOILED, Purpose, end, publish, queue_round
from backend.store.base import live as live_store
from backend.store.base import lookup
from backend.store.judging import points as series_points
from backend.store.judging import series as series_store
from backend.store.regressions import points as point_store
from backend.store.sessions import sessions as store
from backend.store.sessions.sessions import StoredTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The response to a round."""

    run_id: str
    session_id: str
    state: str
    decision: str | None
    reason: str
    created: bool
    """False: exactly these bytes had been delivered before."""


# --- recording -------------------------------------------------------------------------------------------------------


def deliver_round(
    c: Connection, run_id: str, body: bytes, *, lease: str | None, principal: Principal, now: datetime
) -> Delivered:
    """Process a round. Delivering the same bytes again changes nothing; different bytes under its id are refused."""
    require_no_workflow(principal)
    confine(c, principal, [("run_id", run_id)], scope_of_deliverer(principal))
    digest = hashlib.sha256(body).digest()
    said = parse_round(run_id, body)
    entry = store.lock_round(c, run_id, said.worker)
    if entry is None or entry["session_id"] is None:
        raise NotFound(f"no round of a session waits under {run_id}")
    require_deliverer(c, principal, entry["project_id"])
    seen = store.find_session(c, entry["session_id"])
    assert seen is not None  # the queue's entries go with their project, as sessions do
    if entry["body_sha256"] is not None:
        return _delivered_before(entry, seen, digest)
    _check(entry, said, lease)
    check_worker_name(said.worker, entry["worker_token_id"], principal)
    # In the order in which an arriving result takes its locks: series, testbed, and the session last.
    metrics = metrics_of_round(c, seen, said)
    series_store.lock_by_id(c, sorted({m.series_id for m in metrics if m.series_id is not None}))
    apply.lock(c, seen["project_id"])
    session = store.find_session(c, seen["id"], lock=True)
    assert session is not None
    store.end_round(c, run_id, worker=said.worker, error=said.error, started=said.started_at, digest=digest, now=now)
    if session["state"] in store.OPEN:
        _ArrivedRound(c, session, said, now).take_in()
        session = store.find_session(c, session["id"]) or session
    publish_run(c, entry["project_id"], run_id, "done")
    live_store.notify_work(c)
    return _answer(run_id, session, created=True)


def _delivered_before(entry: RowMapping, session: RowMapping, digest: bytes) -> Delivered:
    if entry["body_sha256"] != digest:
        raise Conflict(f"round {entry['id']} was delivered with other content; what is stored is never overwritten")
    return _answer(entry["id"], session, created=False)


def _answer(run_id: str, session: RowMapping, *, created: bool) -> Delivered:
    return Delivered(
        run_id=run_id,
        session_id=session["id"],
        state=session["state"],
        decision=session["decision"],
        reason=session["reason"],
        created=created,
    )


def _check(entry: RowMapping, said: Round, lease: str | None) -> None:
    if (entry["project"], entry["testbed"]) != (said.project, said.testbed):
        raise Conflict(f"round {said.run_id} is of {entry['project']} on {entry['testbed']}, not of {said.project}")
    is_held = lease is not None and entry["lease_hash"] == lease_hash(lease)
    if not is_held and (said.status != "ok" or entry["lease_hash"] is not None):
        raise Conflict(f"this lease does not hold round {said.run_id} (any more)")
    if is_held and entry["holder"] not in (None, said.worker):
        raise Conflict(f"round {said.run_id} is held by worker {entry['holder']}, and this says it is of {said.worker}")


class _ArrivedRound:
    """One round, taken in step by step. Series, testbed and session are locked."""

    def __init__(self, c: Connection, session: RowMapping, said: Round, now: datetime) -> None:
        self.c, self.session, self.said, self.now = c, session, said, now
        self.purpose = Purpose(session["purpose"])

    def take_in(self) -> None:
        c, session, said = self.c, self.session, self.said
        self._keep_turns()
        if said.status == "failed":
            self._finish("failed", f"it could not be run: {said.error or 'no reason was given'}")
            return
        if said.status == "quarantined":
            self._spoiled()
            return
        done = session["rounds_done"] + 1
        store.change_session(c, session["id"], state="running", worker=said.worker, rounds_done=done)
        metrics = judged(c, session, metrics_so_far(c, session), self.now)
        store.replace_series(c, session["id"], [row_of(m) for m in metrics])
        if not metrics:
            self._finish("failed", "base and head have no metric in common that is judged")
        elif self.purpose is Purpose.COMPARE:
            self._go_on_comparing(metrics, done)
        elif self.purpose is Purpose.ATTRIBUTE:
            self._go_on_measuring(done)
        else:
            self._decide(metrics, done)

    def _keep_turns(self) -> None:
        counted = self.said.status == "ok"
        first = len(store.turns_of(self.c, self.session["id"]))
        turns = [
            StoredTurn(
                number=first + number,
                arm=arm,
                run_id=self.said.run_id,
                counted=counted,
                status=run.status.value,
                error=run.error,
                worker=self.said.worker,
                document=document,
            )
            for number, (arm, run, document) in enumerate(self.said.turns)
        ]
        if turns:
            store.insert_turns(self.c, self.session["id"], turns)

    def _spoiled(self) -> None:
        spoiled = self.session["rounds_spoiled"] + 1
        store.change_session(
            self.c, self.session["id"], state="running", worker=self.said.worker, rounds_spoiled=spoiled
        )
        if spoiled > MOST_SPOILED:
            self._finish("quarantined", f"{spoiled} rounds were spoiled; the last: {self.said.error}")
        else:
            self._again()

    def _again(self) -> None:
        session = store.find_session(self.c, self.session["id"])
        assert session is not None
        queue_round(self.c, session, self.now)

    def _finish(self, state: str, reason: str, decision: str | None = None) -> None:
        end(self.c, self.session, state, reason, self.now, decision=decision)
        regression_id = self.session["regression_id"]
        if regression_id is None or self.purpose is not Purpose.CONFIRM:
            return
        decided = SessionDecided(session_id=self.session["id"], state=state, decision=decision, reason=reason)
        apply.apply_event(self.c, regression_id, decided, self.now)

    # --- confirm and bisect

    def _decide(self, metrics: Sequence[SessionMetric], done: int) -> None:
        """The lead's word ends the session; the other metrics are told of where they are clear as well."""
        lead = self._lead(metrics)
        if lead is None:
            self._finish("failed", f"base and head did not both measure {self._asked()}, which is in question")
            return
        assert lead.step is not None
        if lead.step.decision is Decision.CONTINUE and done < self.session["max_rounds"]:
            self._again()
            return
        decision = Decision.UNDECIDED if lead.step.decision is Decision.CONTINUE else lead.step.decision
        self._finish("decided", _in_words(lead, decision), decision.value)
        if self.purpose is Purpose.CONFIRM:
            conclude(self.c, self.session, metrics, self.now)

    def _lead(self, metrics: Sequence[SessionMetric]) -> SessionMetric | None:
        return next((m for m in metrics if m.series_id == self.session["lead_series_id"]), None)

    def _asked(self) -> str:
        """The metric whose change is to be decided."""
        found = lookup.series_name(self.c, self.session["lead_series_id"])
        return "a series that is gone" if found is None else " ".join(filter(None, found))

    # --- attribute

    def _go_on_measuring(self, done: int) -> None:
        """All its rounds are wanted: the joint detector weighs them against all that it knows."""
        if done < self.session["max_rounds"]:
            self._again()
        else:
            self._finish("decided", "measured; the joint detector decides what caused it")

    # --- compare

    def _go_on_comparing(self, metrics: Sequence[SessionMetric], done: int) -> None:
        unclear = [m for m in metrics if m.measurement.role.value == "gate" and m.decision == "unclear"]
        if unclear and done < self.session["max_rounds"]:
            publish(self.c, self.session, "running")
            self._again()
            return
        words = {word: sum(m.decision == word for m in metrics) for word in ("slower", "faster", "same", "unclear")}
        counted = ", ".join(f"{count} {word}" for word, count in words.items() if count)
        self._finish("decided", f"head against base: {counted}", "undecided" if unclear else None)


def _in_words(lead: SessionMetric, decision: Decision) -> str:
    step = lead.step
    assert step is not None
    said = {
        Decision.CONFIRMED: "proved slower",
        Decision.WITHDRAWN: "not slower: noise",
    }.get(decision, "could not be decided; the following commits decide")
    return (
        f"{lead.result.benchmark} {lead.measurement.metric} {step.change:+.1%} of cost "
        f"({step.low:+.1%} to {step.high:+.1%}), {step.processes_a_side} processes a side: {said}"
    )


# --- what it means for the regression --------------------------------------------------------------------------------


def conclude(c: Connection, session: RowMapping, metrics: Sequence[SessionMetric], now: datetime) -> None:
    """Confirmed and withdrawn become part of the history of each series that had raised the suspect."""
    points = point_store.of_regressions(c, [session["regression_id"]])
    onsets = {point.series_id: point.onset_position for point in points if point.state == "suspect"}
    by_series = {metric.series_id: metric for metric in metrics if metric.series_id in onsets}
    events: list[ChangeEvent] = []
    context, runs = None, StoredRuns(now)
    locked = series_store.lock_by_id(c, sorted(s for s in by_series if s is not None))
    states = states_of(c, [series for series in locked if series.state_position is not None])
    for series in locked:
        metric, state = by_series[series.id], states.get(series.id)
        assert metric.step is not None
        if state is None or metric.step.decision not in (Decision.CONFIRMED, Decision.WITHDRAWN):
            continue
        last = series_points.load_points(c, [series.id], around=state.last_position, before=0)[series.id]
        if not last:
            continue
        context = runs.of(c, last[-1])
        onset = onsets[series.id]
        changes, after = conclude_state(state, onset, metric.step.decision, context.policy_of(series))
        if not changes:
            continue
        save_states(c, {series: after})
        store.keep_outcome(c, session["id"], series.id, onset=onset, position=after.last_position)
        events += [ChangeEvent(series_id=series.id, change=change, noise=metric.spread) for change in changes]
    if events and context is not None:
        known = apply.apply_changes(c, context, events, sorted(onsets), watched=len(metrics))
        ledger.restate(c, of_events(events, known), now)
