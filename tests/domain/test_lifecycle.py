"""State tables: final states are final, and every state can be reached."""

from __future__ import annotations

import pytest

from autotuner.domain.errors import Conflict
from autotuner.domain.lifecycle import (
    JOB_FINISHED,
    JOB_NEXT,
    RUN_ACTIVE,
    RUN_NEXT,
    TRIAL_FINISHED,
    TRIAL_NEXT,
    advance_job,
    advance_run,
    advance_trial,
)


@pytest.mark.parametrize(
    ("table", "start"), [(JOB_NEXT, "queued"), (TRIAL_NEXT, "queued"), (RUN_NEXT, "launching")], ids=str
)
def test_every_state_can_be_reached(table, start):
    seen, frontier = {start}, [start]
    while frontier:
        for state in table[frontier.pop()] - seen:
            seen.add(state)
            frontier.append(state)
    assert seen == set(table)


def test_finished_trials_and_runs_never_go_on():
    assert all(not TRIAL_NEXT[state] for state in TRIAL_FINISHED)
    assert all(not RUN_NEXT[state] for state in set(RUN_NEXT) - RUN_ACTIVE)


def test_of_finished_jobs_only_a_completed_one_goes_on():
    assert {state for state in JOB_FINISHED if JOB_NEXT[state]} == {"completed"}


def test_a_legal_step_gives_the_new_state():
    assert advance_job("queued", "running") == "running"
    assert advance_trial("launching", "queued") == "queued"
    assert advance_run("launching", "lost") == "lost"


def test_an_illegal_step_says_what_would_be_legal():
    with pytest.raises(Conflict, match="from failed it can go to nothing: it is final"):
        advance_trial("failed", "running")
