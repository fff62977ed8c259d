"""A cluster in miniature: a stand-in for ``sbatch`` takes the jobs that the workflow submits, with what they ask for."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from threespo.paths import Paths
from threespo.pipeline import journal
from threespo.pipeline.stages import Job, list_jobs
from threespo.scaling.resources import MIN_MEGABYTES, MIN_MINUTES, JobResources
from threespo.study.load import load_study

ROOT = Path(__file__).resolve().parents[2]

# Runs each job beside the others in a session of its own, as a cluster would. What is to be preempted fails the first time.
SBATCH = f"""#!{sys.executable}
import json, os, pathlib, subprocess, sys
folder = pathlib.Path(os.environ["CLUSTER"])
*asked, script = sys.argv[1:]
number = len(list(folder.glob("job-*")))
text = pathlib.Path(script).read_text()
(folder / f"job-{{number}}").write_text(json.dumps({{"asked": asked, "script": text}}))
victim, done = os.environ.get("PREEMPT", ""), folder / "preempted"
run = [script]
if victim and victim in text and not done.exists():
    done.touch()
    # What the executor's own script does for a job that has failed.
    run = ["sh", "-c", "touch " + text.rsplit("touch ", 1)[1].split()[0].strip("'\\"; )")]
with open(folder / f"log-{{number}}", "w") as log:
    subprocess.Popen(run, start_new_session=True, stdout=log, stderr=log, env={{**os.environ, "SLURM_JOB_ID": str(number)}})
print(number)
"""

ASKED = "--mem={resources.mem_mb} --time={resources.runtime} --gpus={resources.gpu} --nodes={resources.nodes}"


@pytest.mark.slow
def test_every_job_is_submitted_with_its_resources_and_a_preempted_one_again(checkout, tmp_path):
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(SBATCH)
    sbatch.chmod(0o755)
    profile = yaml.safe_load((ROOT / "workflow" / "profiles" / "slurm" / "config.yaml").read_text())
    plain = [text for text in profile["default-resources"] if text.startswith(("runtime", "mem_mb"))]
    assert len(plain) == 2
    done = checkout.snakemake(
        *("--executor", "cluster-generic", "--cluster-generic-submit-cmd", f"{sbatch} {ASKED}"),
        *("--jobs", "4", "--retries", str(profile["retries"]), "--latency-wait", "10"),
        *("--default-resources", "gpu=0", "nodes=0", *plain),
        *("--seconds-between-status-checks", "1", "--until", "train"),
        CLUSTER=str(cluster),
        PREEMPT="grpo/seed-0",
    )
    assert done.returncode == 0, done.stderr[-3000:] + "".join(
        file.read_text()[-500:] for file in cluster.glob("log-*")
    )
    assert "jobs done" in done.stderr
    assert (cluster / "preempted").exists()

    study = load_study(checkout.results() / "study.json")
    submitted = [json.loads(file.read_text()) for file in cluster.glob("job-*")]
    meant = [job for job in list_jobs(study) if job.stage in ("data", "policy", "train")]
    assert len(submitted) == len(meant) + 1, "one cluster job for each, and one again"
    train = [job["asked"] for job in submitted if '"rule": "train"' in job["script"]]
    least = [f"--mem={MIN_MEGABYTES}", "--gpus=0", "--nodes=0"]
    assert len(train) == 5
    for asked in train:
        assert [part for part in asked if not part.startswith("--time")] == least
        assert int(asked[1].removeprefix("--time=")) >= MIN_MINUTES
    call, _ = journal.read_journal(Paths(checkout.results()))
    assert {Job(*one) for one in call.jobs} == set(meant), "the others were not asked for"
    assert {Job(*one) for one in call.left} == set(list_jobs(study)) - set(meant)
    for job in meant:
        assert all(path.exists() for path in job.outputs(Paths(checkout.results())).paths()), job


def paper(**changes):
    study = load_study(ROOT / "config" / "studies" / "paper.yaml", changes)
    assert study.gpus_per_rank
    return study


def test_four_ranks_of_7b_get_memory_for_all_and_more_time_than_the_run_takes():
    four = {"ranks_per_run": 4, "zero_stage": 3, "gradient_checkpointing": True}
    study = paper(policies={"qwen25-7b": four})
    allotment = JobResources(study)
    large = allotment.of(Job("train", "alfworld/qwen25-7b/grpo/seed-0"))
    # Each rank reads policy and reference, 15.2 GB each, before it passes them on to its GPU.
    assert large.mem_mb > 4 * 2 * 15_200
    assert large.nodes == 0, "one machine of eight GPUs"
    small = allotment.of(Job("train", "alfworld/qwen25-1b5/grpo/seed-0"))
    assert small.mem_mb < large.mem_mb
    assert large.runtime > small.runtime > 24 * 60
    assert allotment.of(Job("tables")).mem_mb == MIN_MEGABYTES
    assert allotment.of(Job("evaluate", "webshop/qwen25-7b/ppo/seed-2")).runtime > MIN_MINUTES


def test_a_run_larger_than_a_machine_is_given_several():
    study = paper(policies={"qwen25-7b": {"ranks_per_run": 16, "zero_stage": 3}}, gpus=16)
    assert JobResources(study).of(Job("train", "alfworld/qwen25-7b/ppo/seed-0")).nodes == 2
    assert JobResources(study).of(Job("train", "alfworld/qwen25-1b5/ppo/seed-0")).nodes == 0
