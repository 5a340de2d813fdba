"""A job from submission to its end, on an executor whose runs end at once."""

from __future__ import annotations

from collections import Counter

from tests.support.scheduling import request


def test_a_job_measures_its_budget_and_names_the_fastest(bench, executor):
    job = bench.operations.submit(request())
    ended = bench.drive()
    trials = bench.trials(job.id)
    assert ended.state == "completed"
    assert "6 trials of the budget" in ended.stopped_because
    assert [t.number for t in trials] == list(range(6))
    assert len({t.config.key() for t in trials}) == 6
    best = bench.operations.best(job.id)
    fastest = min((t for t in trials if t.measurement), key=lambda t: t.measurement.step_seconds.median)
    assert best.trial_id == fastest.id
    # tokens per step 16 x 32 = 512
    assert best.tokens_per_second == 512 / fastest.measurement.step_seconds.median


def test_the_naive_layout_is_measured_first_and_gains_are_relative_to_it(bench):
    job = bench.operations.submit(request())
    bench.drive()
    first = bench.trials(job.id)[0]
    # tp = devices per node = 4 (as many heads), micro-batch 1, nothing else
    assert (first.source, first.config.key()) == ("baseline", "tp4-pp1-dp1-mb1")
    best = bench.operations.best(job.id)
    assert best.baseline is not None
    assert best.baseline.relation == "the naive layout"
    assert best.speedup_over_baseline == best.tokens_per_second / first.measurement.tokens_per_second


def test_the_users_own_layout_is_the_baseline(bench):
    job = bench.operations.submit(request(baseline={"tp": 2, "micro_batch_size": 2}))
    bench.drive()
    assert bench.trials(job.id)[0].config.key() == "tp2-pp1-dp2-mb2"
    assert bench.operations.best(job.id).baseline.relation == "your baseline"


def test_leaders_are_measured_again_in_turn_and_pooled(bench, executor):
    job = bench.operations.submit(request(measure={"steps": 4, "confirm_runs": 2, "confirm_leaders": 2}))
    bench.drive()
    with bench.database.read() as store:
        confirms = [run for run in store.runs.of_job(job.id) if run.purpose == "confirm"]
    assert len(confirms) == 4
    one, other = confirms[0].trial_id, confirms[1].trial_id
    assert one != other
    assert [run.trial_id for run in confirms] == [one, other, one, other]
    pooled = {t.id: t.measurement for t in bench.trials(job.id)}
    # one measuring run and two confirmations of 4 steps each
    assert (pooled[one].runs, pooled[one].step_seconds.count) == (3, 12)


def test_out_of_memory_is_a_failed_trial_and_the_job_goes_on(bench, executor):
    executor._out_of_memory = {(4, 1, 1)}
    job = bench.operations.submit(request())
    ended = bench.drive()
    trials = bench.trials(job.id)
    assert ended.state == "completed"
    assert Counter(t.state for t in trials)["failed"] >= 1
    assert {t.failure.kind for t in trials if t.failure} == {"out_of_memory"}
    best = bench.operations.best(job.id)
    assert best.trials.failed["out_of_memory"] >= 1
    assert best.baseline is None, "the naive layout ran out of memory, so there is nothing to compare with"


def test_a_job_in_which_nothing_works_fails_with_the_reason(bench, executor):
    executor._out_of_memory = {(tp, pp, 4 // tp // pp) for tp in (1, 2, 4) for pp in (1, 2, 4) if tp * pp <= 4}
    job = bench.operations.submit(request())
    ended = bench.drive()
    assert ended.state == "failed"
    assert "no layout could be measured in 6 trials (6 x out_of_memory)" in ended.error
    assert job.id == ended.id


def test_a_small_space_is_exhausted(bench):
    job = bench.operations.submit(
        request(space={"tp": [2], "pp": [2], "micro_batch_size": [1, 2], "recompute": ["none"]})
    )
    ended = bench.drive()
    assert ended.state == "completed"
    assert len(bench.trials(job.id)) == 2
    assert ended.stopped_because


def test_patience_ends_a_job_early(bench):
    job = bench.operations.submit(request(budget={"max_trials": 20, "patience_trials": 2}))
    ended = bench.drive()
    assert ended.state == "completed"
    assert len(bench.trials(job.id)) < 20


def test_every_result_has_its_event_in_order(bench):
    job = bench.operations.submit(request())
    bench.drive()
    with bench.database.read() as store:
        events = store.events.after(0, job_id=job.id, limit=1000)
    kinds = Counter(e.kind for e in events)
    assert kinds["trial.created"] == 6
    assert events[0].kind == "job.created"
    assert events[-1].kind == "job.state"
    assert events[-1].data["state"] == "completed"
    succeeded = [e for e in events if e.kind == "trial.state" and e.data["state"] == "succeeded"]
    assert len(succeeded) == 6
    assert kinds["job.best"] >= 1


def test_every_collected_run_is_released(bench, executor):
    bench.operations.submit(request())
    bench.drive()
    assert sorted(executor.released) == sorted(executor.submitted)


def test_a_trial_that_leads_only_after_the_others_fell_back_is_confirmed_too(bench, executor):
    """The first run of two layouts was lucky; once they are pooled, others lead and are run again as well."""
    times: dict[tuple[int, int, int, int], list[float]] = {}

    def lucky_first(layout):
        key = (layout.tp, layout.pp, layout.dp, layout.micro_batch_size)
        seen = times.setdefault(key, [])
        seen.append(1.0 if len(times) <= 2 and not seen else 2.0 + 0.01 * len(times))
        return seen[-1]

    executor._step_seconds = lucky_first
    job = bench.operations.submit(request(measure={"steps": 5, "confirm_runs": 1, "confirm_leaders": 1}))
    bench.drive()
    best = bench.operations.best(job.id)
    measured = next(t.measurement for t in bench.trials(job.id) if t.id == best.trial_id)
    assert measured.runs == 2
