"""The tree of commands: names, options and help; what each does is in the module it imports when it is called."""

# ruff: noqa: PLC0415 - commands import what they need when they run, so that --help and errors are quick

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.exits import handled

app = typer.Typer(
    no_args_is_help=False,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Finds, by measuring, the fastest 3D-parallel layout of a GPT training run.",
)
job_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Jobs of a running service.")
trial_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Trials of a running service.")
db_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The database.")
app.add_typer(job_app, name="job")
app.add_typer(trial_app, name="trial")
app.add_typer(db_app, name="db")

JobFile = Annotated[Path, typer.Argument(metavar="FILE", help="A job in YAML or JSON.")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]
TrialId = Annotated[str, typer.Argument(metavar="TRIAL", help="A trial's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
DataDir = Annotated[
    str, typer.Option("--data-dir", help="Folder of the database and the runs [AUTOTUNER_DATA_DIR or autotuner-data].")
]
Url = Annotated[str, typer.Option("--url", help="Address of the service [AUTOTUNER_URL or http://127.0.0.1:8000].")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=200, help="How many to show.")]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Options of the program itself."""
    if version:
        from autotuner import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


@app.command()
@handled
def demo(
    output: Annotated[Path, typer.Option("--output", help="Where everything goes.")] = Path("demo-output"),
    trials: Annotated[int, typer.Option("--trials", min=1, max=1000, help="Layouts to measure.")] = 12,
    devices: Annotated[int, typer.Option("--devices", min=1, max=64, help="Ranks to lay out.")] = 4,
) -> None:
    """Tune a small GPT on this machine through the real service, and end with the best layout and its script."""
    from autotuner.cli.demo import run_demo

    run_demo(output, max_trials=trials, devices=devices)


@app.command()
@handled
def serve(
    data_dir: DataDir = "",
    host: Annotated[str, typer.Option(help="Address to listen on [127.0.0.1].")] = "",
    port: Annotated[int, typer.Option(min=-1, max=65_535, help="Port, 0 for a free one [8000].")] = -1,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Only the API; run `autotuner worker` apart.")] = False,
) -> None:
    """Run the service: REST API, dashboard, and one worker beside it."""
    from autotuner.cli.serve import run_serve

    run_serve(data_dir=data_dir, host=host, port=port, with_worker=not no_worker)


@app.command()
@handled
def worker(data_dir: DataDir = "") -> None:
    """Run a worker: it claims jobs from the database and measures their trials."""
    from autotuner.cli.serve import run_worker

    run_worker(data_dir=data_dir)


@app.command()
@handled
def tune(
    file: JobFile,
    local: Annotated[bool, typer.Option("--local", help="Run the job here, without a service.")] = False,
    strategy: Annotated[str, typer.Option(help="Overrides the file's strategy.")] = "",
    output: Annotated[
        Path, typer.Option("-o", "--output", help="With --local: where the best layout's script goes.")
    ] = Path("best"),
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Submit only and print the job.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for the end.")] = 86_400.0,
    data_dir: DataDir = "",
    url: Url = "",
    as_json: AsJson = False,
) -> None:
    """Tune a job file: submit it to the service and follow it, or run it here with --local."""
    from autotuner.cli.tune import tune_local, tune_remote

    if local:
        tune_local(file, strategy=strategy, output=output, data_dir=data_dir, timeout_seconds=timeout, as_json=as_json)
    else:
        tune_remote(file, strategy=strategy, url=url, wait=not no_wait, timeout_seconds=timeout, as_json=as_json)


@app.command()
@handled
def measure(
    file: JobFile,
    tp: Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel size.")] = 1,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline-parallel size.")] = 1,
    dp: Annotated[int, typer.Option("--dp", min=1, help="Data-parallel size.")] = 1,
    micro_batch: Annotated[int, typer.Option("--micro-batch", min=1, help="Micro-batch size.")] = 1,
    virtual_stages: Annotated[int, typer.Option("--virtual-stages", min=1, help="Model chunks per stage.")] = 1,
    zero_stage: Annotated[int, typer.Option("--zero-stage", min=0, max=3, help="Sharded optimizer stage.")] = 0,
    recompute: Annotated[str, typer.Option("--recompute", help="none, selective or full.")] = "none",
    sequence_parallel: Annotated[bool, typer.Option("--sequence-parallel", help="Sequence parallelism.")] = False,
    data_dir: DataDir = "",
    as_json: AsJson = False,
) -> None:
    """Measure one layout of a job on this machine, beside its estimate."""
    from autotuner.cli.measure import measure_layout
    from autotuner.domain.job import BaselineRequest
    from autotuner.domain.validation import validated

    layout = validated(
        BaselineRequest,
        {
            "tp": tp,
            "pp": pp,
            "dp": dp,
            "micro_batch_size": micro_batch,
            "virtual_stages": virtual_stages,
            "zero_stage": zero_stage,
            "recompute": recompute,
            "sequence_parallel": sequence_parallel,
        },
    )
    measure_layout(file, layout, data_dir=data_dir, as_json=as_json)


@app.command()
@handled
def estimate(
    file: JobFile,
    limit: Limit = 20,
    data_dir: DataDir = "",
    as_json: AsJson = False,
) -> None:
    """Rank all layouts of a job by estimate; nothing is run."""
    from autotuner.cli.measure import print_estimate

    print_estimate(file, limit=limit, data_dir=data_dir, as_json=as_json)


@app.command()
@handled
def probe(
    ranks: Annotated[int, typer.Option("--ranks", min=1, max=64, help="Ranks that work at once.")] = 2,
    data_dir: DataDir = "",
    as_json: AsJson = False,
) -> None:
    """Measure this machine (matrix products, memory, collectives) and keep the figures for estimates."""
    from autotuner.cli.measure import run_probe

    run_probe(ranks=ranks, data_dir=data_dir, as_json=as_json)


@app.command()
@handled
def export(
    job: JobId,
    framework: Annotated[str, typer.Option("--framework", help="Whose arguments to write.")] = "bundled",
    launcher: Annotated[str, typer.Option("--launcher", help="How the processes are started.")] = "torchrun",
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")] = Path("best"),
    url: Url = "",
) -> None:
    """Write the files that launch a job's best layout."""
    from autotuner.cli.remote import export_job

    export_job(job, framework=framework, launcher=launcher, output=output, url=url)


@job_app.command("list")
@handled
def job_list(limit: Limit = 20, url: Url = "", as_json: AsJson = False) -> None:
    """The newest jobs."""
    from autotuner.cli.remote import list_jobs

    list_jobs(limit=limit, url=url, as_json=as_json)


@job_app.command("show")
@handled
def job_show(job: JobId, url: Url = "", as_json: AsJson = False) -> None:
    """One job: its state, its leaderboard and its best layout."""
    from autotuner.cli.remote import show_job

    show_job(job, url=url, as_json=as_json)


@job_app.command("watch")
@handled
def job_watch(
    job: JobId,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for the end.")] = 86_400.0,
    url: Url = "",
    as_json: AsJson = False,
) -> None:
    """Follow a job until it ends. Ctrl-C leaves the job running."""
    from autotuner.cli.remote import watch

    watch(job, timeout_seconds=timeout, url=url, as_json=as_json)


@job_app.command("cancel")
@handled
def job_cancel(job: JobId, url: Url = "", as_json: AsJson = False) -> None:
    """End a job; what was measured stays."""
    from autotuner.cli.remote import act

    act(job, action="cancel", url=url, as_json=as_json)


@job_app.command("pause")
@handled
def job_pause(job: JobId, url: Url = "", as_json: AsJson = False) -> None:
    """Let the running trial end and start no other."""
    from autotuner.cli.remote import act

    act(job, action="pause", url=url, as_json=as_json)


@job_app.command("resume")
@handled
def job_resume(job: JobId, url: Url = "", as_json: AsJson = False) -> None:
    """Go on after a pause."""
    from autotuner.cli.remote import act

    act(job, action="resume", url=url, as_json=as_json)


@trial_app.command("list")
@handled
def trial_list(job: JobId, url: Url = "", as_json: AsJson = False) -> None:
    """All trials of a job."""
    from autotuner.cli.remote import list_trials

    list_trials(job, url=url, as_json=as_json)


@trial_app.command("show")
@handled
def trial_show(trial: TrialId, url: Url = "") -> None:
    """One trial as JSON."""
    from autotuner.cli.remote import show_trial

    show_trial(trial, url=url)


@trial_app.command("logs")
@handled
def trial_logs(
    trial: TrialId,
    rank: Annotated[int, typer.Option("--rank", min=0, help="Which rank's log.")] = 0,
    url: Url = "",
) -> None:
    """The end of a rank's log."""
    from autotuner.cli.remote import show_log

    show_log(trial, rank=rank, url=url)


@db_app.command("upgrade")
@handled
def db_upgrade(data_dir: DataDir = "") -> None:
    """Bring the database to this version's schema."""
    from autotuner.cli.serve import upgrade_database

    upgrade_database(data_dir=data_dir)
