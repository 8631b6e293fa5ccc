import pytest

from backend.regression.cause.attribution import CanaryShift, CauseName, Evidence, attribute

QUIET = CanaryShift("gemm", 0.001, 0.002)
SLOW = CanaryShift("gemm", 0.12, 0.002)
OLD, NEW = {"torch": "2.12", "driver": "570"}, {"torch": "2.13", "driver": "570"}


@pytest.mark.parametrize(
    ("evidence", "cause", "suppress"),
    [
        (Evidence(magnitude=0.2, noise=0.01), CauseName.CODE, False),
        (
            Evidence(magnitude=0.2, environment_before=OLD, environment_after=OLD, canary=(QUIET,)),
            CauseName.CODE,
            False,
        ),
        (Evidence(magnitude=0.2, environment_before=OLD, environment_after=NEW), CauseName.ENVIRONMENT, True),
        (Evidence(magnitude=0.2, suite_version_before="1.0", suite_version_after="1.1"), CauseName.METHOD, True),
        (Evidence(magnitude=0.2, suite_version_before="1.0", suite_version_after="1.0"), CauseName.CODE, False),
        (Evidence(magnitude=0.2, canary=(SLOW,)), CauseName.HARDWARE, True),
        (Evidence(magnitude=0.2, canary=(CanaryShift("gemm", -0.12, 0.002),)), CauseName.CODE, False),
        (Evidence(magnitude=0.2, canary=(CanaryShift("gemm", 0.03, 0.002),)), CauseName.CODE, False),
        (Evidence(magnitude=0.2, throttle=("sw_power_cap",)), CauseName.HARDWARE, True),
        (Evidence(magnitude=0.2, throttle=("sw_power_cap",), other_workers_agree=True), CauseName.CODE, False),
        (Evidence(magnitude=0.2, other_workers_agree=False), CauseName.HARDWARE, True),
        (Evidence(magnitude=0.2, moved_series=40, watched_series=42), CauseName.CODE, False),
        (
            Evidence(magnitude=0.2, moved_series=40, watched_series=42, other_workers_agree=False),
            CauseName.HARDWARE,
            True,
        ),
        (Evidence(magnitude=0.2, docs_only=True), CauseName.NOISE, True),
        (Evidence(magnitude=0.06, noise=0.05), CauseName.NOISE, False),
        (Evidence(magnitude=0.2, session_confirmed=False), CauseName.NOISE, True),
        (Evidence(magnitude=0.2, canary=(SLOW,), session_confirmed=True), CauseName.CODE, False),
        (Evidence(magnitude=0.2, canary=(SLOW,), counter="host_syncs"), CauseName.CODE, False),
    ],
)
def test_the_first_cause_follows_the_strongest_evidence(evidence, cause, suppress):
    found = attribute(evidence)
    assert (found.cause, found.suppress) == (cause, suppress)
    assert all(sentence.endswith(".") for sentence in found.evidence)


def test_the_evidence_names_the_counter_that_moved_beside_a_time():
    told = attribute(Evidence(magnitude=0.2, noise=0.02, counter="host_syncs")).evidence
    assert told == ("host_syncs moved, which is counted exactly: no machine moves it.",)


def test_the_evidence_names_what_changed():
    told = attribute(Evidence(magnitude=0.2, environment_before=OLD, environment_after=NEW)).evidence
    assert told == ("torch changed from 2.12 to 2.13 at this point.",)
