"""The command line as a user meets it: exit statuses and one clear sentence for every mistake."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.service_process import TINY_JOB, ServiceProcess

GOOD = json.dumps(TINY_JOB)


def run(*arguments: str, cwd, env: dict[str, str] | None = None):
    done = subprocess.run(
        [sys.executable, "-m", "autotuner", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env=env,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"),
        (GOOD.replace('"num_heads": 2', '"num_heads": 3'), "not divisible by num_heads 3"),
        (GOOD.replace('"global_batch_size": 8', '"global_batch_size": -8'), "greater than 0"),
        (GOOD.replace('"preset": "local"', '"preset": "mars"'), "mars"),
        (GOOD.replace('"recompute": ["none"]', '"tp": [5]'), "world_size"),
        (GOOD.replace('"name": "tiny"', '"nom": "tiny"'), "nom: no such field"),
    ],
)
def test_a_wrong_job_file_is_wrong_usage(tmp_path, text, said):
    (tmp_path / "job.yaml").write_text(text)
    done = run("estimate", "job.yaml", "--data-dir", "data", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("job", "list", "--url", "http://127.0.0.1:9"), 6, "no service answers"),
        (("job", "list", "--url", "ftp://x"), 2, "starts with http"),
        (("measure", "job.yaml", "--tp", "0"), 2, "tp"),
        (("measure", "job.yaml", "--recompute", "some"), 2, "recompute"),
        (("measure", "job.yaml", "--tp", "3", "--data-dir", "data"), 2, "3"),
        (("estimate", "none.yaml"), 2, "No such file"),
        (("serve", "--data-dir", "job.yaml/x"), 1, "data folder"),
        (("serve", "--port", "99999"), 2, "port"),
        (("serve", "--host", "192.0.2.1"), 2, "no accounts yet"),
    ],
)
def test_wrong_arguments_end_in_a_sentence_and_a_status(tmp_path, arguments, status, said):
    (tmp_path / "job.yaml").write_text(GOOD)
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    assert said in done.stderr


def test_estimate_prints_one_json_document(tmp_path):
    (tmp_path / "job.yaml").write_text(GOOD)
    done = run("estimate", "job.yaml", "--data-dir", "data", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report) >= {"candidates", "rejections", "ranked"}
    assert set(report["ranked"][0]) >= {"key", "config", "step_seconds", "tokens_per_second", "mfu", "memory_bytes"}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("service") / "data"
    data_dir.mkdir()
    service = ServiceProcess(data_dir).start()
    yield service
    assert service.stop() == 0, service.log_tail()


def test_a_taken_port_is_told(service, tmp_path):
    port = service.url.rsplit(":", 1)[1]
    done = run("serve", "--data-dir", "data", "--port", port, "--no-worker", cwd=tmp_path)
    assert done.returncode != 0
    assert port in done.stderr


def test_what_the_service_does_not_know_is_not_found(service, tmp_path):
    for arguments in (("job", "show", "nobody"), ("job", "cancel", "nobody"), ("trial", "logs", "nobody")):
        done = run(*arguments, "--url", service.url, cwd=tmp_path)
        assert done.returncode == 3, done.stderr


def test_a_job_is_submitted_paused_listed_and_cancelled(service, tmp_path):
    (tmp_path / "job.yaml").write_text(GOOD)
    url = ("--url", service.url)
    submitted = run("tune", "job.yaml", "--no-wait", "--json", *url, cwd=tmp_path)
    assert submitted.returncode == 0, submitted.stderr
    job = json.loads(submitted.stdout)
    export = run("export", job["id"], "-o", "best", *url, cwd=tmp_path)
    assert (export.returncode, "no measured layout yet" in export.stderr) == (5, True)
    assert run("job", "pause", job["id"], *url, cwd=tmp_path).returncode == 0
    listed = json.loads(run("job", "list", "--json", *url, cwd=tmp_path).stdout)
    assert [j["id"] for j in listed] == [job["id"]]
    cancelled = run("job", "cancel", job["id"], "--json", *url, cwd=tmp_path)
    assert json.loads(cancelled.stdout)["desired_state"] == "cancel"
    watched = run("job", "watch", job["id"], "--timeout", "60", *url, cwd=tmp_path)
    assert watched.returncode == 7, watched.stderr
    assert "cancelled" in watched.stderr
