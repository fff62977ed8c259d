"""The workflow with its slow stages replaced: what runs, in which study, and above all what does not run again."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from tests.integration.soak import VARYING
from threespo.pipeline.stages import list_jobs
from threespo.provenance.digests import file_digest
from threespo.study.catalogue import figures_of
from threespo.study.load import load_study

pytestmark = pytest.mark.slow

RUNS = [
    f"alfworld/tiny-s/{method}/seed-{seed}"
    for method in ("grpo", "threespo-calibrated")
    for seed in (0, 1)
]
TRAIN = [f"train {run}" for run in RUNS]
REFERENCES = ["evaluate alfworld/tiny-s/base/seed-0", "evaluate alfworld/tiny-s/strong/seed-0"]
EVALUATE = [f"evaluate {run}" for run in RUNS] + REFERENCES
LEARN = [f"learning {run}" for run in (*RUNS, "alfworld/tiny-s/base/seed-0")]


def test_one_command_makes_tables_figures_and_a_report(finished):
    assert finished.ran() == sorted(
        ["data alfworld", "policy tiny-s", *TRAIN, *EVALUATE, *LEARN, f"probe {RUNS[2]}"]
    )
    results = finished.results()
    main = pd.read_parquet(results / "tables" / "main.parquet")
    # Two training seeds won 2 and 3 of 4 games: 50 and 75 percent.
    grpo = main[(main["method"] == "grpo") & (main["split"] == "valid_unseen")].iloc[0]
    assert grpo["mean"] == pytest.approx(62.5)
    assert grpo["std"] == pytest.approx(17.6777, abs=1e-3)
    assert (grpo["paper_mean"], grpo["paper_std"]) == (70.1, 2.5)
    for figure in (
        "main_results",
        "learning_curves",
        "learning_time",
        "training_curves",
        "paper_training_curves",
    ):
        for kind in ("svg", "pdf", "png", "csv"):
            assert (results / "figures" / f"{figure}.{kind}").stat().st_size > 100


def test_the_report_needs_no_other_file_and_no_network(finished):
    html = (finished.results() / "report.html").read_text()
    drawn = sorted(path.stem for path in (finished.results() / "figures").glob("*.svg"))
    assert drawn == sorted(
        item.name for item in figures_of(load_study(finished.results() / "study.json"))
    )
    assert html.count("data:image/svg+xml;base64,") == len(drawn)
    for outside in ('src="http', 'href="http', "<script src", "@import", "url("):
        assert outside not in html
    for said in (
        "62.5 ± 17.7",
        "70.1 ± 2.5",
        "base (weak start)",
        "strong clone (ceiling)",
        "un-learning",
        "commit",
    ):
        assert said in html


def test_executed_notebooks_keep_their_outputs_and_the_originals_have_none(finished):
    executed = json.loads((finished.results() / "notebooks" / "main_results.ipynb").read_text())
    assert any(cell.get("outputs") for cell in executed["cells"])
    for path in (finished.folder / "notebooks").glob("*.ipynb"):
        assert not any(cell.get("outputs") for cell in json.loads(path.read_text())["cells"])


def test_a_finished_study_has_nothing_to_do_in_under_ten_seconds(finished_copy):
    # Processor time, since other work on the machine is not this workflow's.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = finished_copy.snakemake()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 10
    assert "Nothing to be done" in done.stderr
    assert finished_copy.ran() == []


def test_a_changed_study_is_another_one_that_takes_what_is_the_same_and_going_back_costs_nothing(
    finished_copy,
):
    before = {path: path.read_bytes() for path in finished_copy.results().rglob("*.*") if path.is_file()}
    change = "set={methods: {grpo: {learning_rate: 0.01}}}"
    # A dry run says what would be taken, and writes nothing at all.
    dry = finished_copy.snakemake("--dry-run", config=("study=ci", change))
    assert "12 jobs taken from results/ci" in dry.stderr
    assert [path.name for path in (finished_copy.folder / "results").iterdir() if path.is_dir()] == [
        "ci"
    ]

    done = finished_copy.snakemake(config=("study=ci", change))
    assert done.returncode == 0, done.stderr
    retrained = [run for run in RUNS if "grpo" in run]
    stages = ("train", "evaluate", "learning")
    assert finished_copy.ran() == sorted(f"{stage} {run}" for stage in stages for run in retrained)
    (other,) = (
        path
        for path in (finished_copy.folder / "results").iterdir()
        if path.is_dir() and path.name != "ci"
    )
    report = (other / "report.html").read_text()
    assert "0.01" in report
    assert other.name in report
    assert before == {path: path.read_bytes() for path in before}

    # The outcome in a few lines, and no list of paths.
    every = len(list_jobs(load_study(other / "study.json")))
    (said,) = re.findall(rf"threespo: \d+ of {every} jobs done.*", done.stderr, re.DOTALL)
    assert "ALFWorld, success on unseen rooms in %: base (weak start) 25.0, GRPO 62.5" in said
    assert f"report: results/{other.name}/report.html" in said
    assert max(map(len, done.stderr.splitlines())) < 300
    assert "Nothing to be done" in finished_copy.snakemake().stderr


@pytest.mark.long
def test_another_environment_adds_runs_reruns_none_and_stands_in_every_table(finished_copy):
    shop = "webshop: {products: 500, max_steps: 15, training: {generations: 200}}"
    done = finished_copy.snakemake(config=("study=ci", f"set={{{shop}}}", "name=both"))
    assert done.returncode == 0, done.stderr
    added = [
        run.replace("alfworld", "webshop") for run in (*RUNS, *(job.split()[1] for job in REFERENCES))
    ]
    trained = added[: len(RUNS)]
    assert finished_copy.ran() == sorted(
        ["data webshop", "policy tiny-s", f"probe {trained[2]}"]
        + [f"train {run}" for run in trained]
        + [f"evaluate {run}" for run in added]
        + [f"learning {run}" for run in added if "strong" not in run]
    )
    main = pd.read_parquet(finished_copy.results("ci-both") / "tables" / "main.parquet")
    assert main.groupby("env")["split"].unique().map(sorted).to_dict() == {
        "alfworld": ["valid_seen", "valid_unseen"],
        "webshop": ["test"],
    }
    # Two training seeds won 2 and 3 of 4 goals, and had half of the reward for the others.
    grpo = main[(main["method"] == "grpo") & (main["env"] == "webshop")].iloc[0]
    assert (grpo["mean"], grpo["score_mean"]) == (pytest.approx(62.5), pytest.approx(81.25))
    assert (grpo["paper_mean"], grpo["paper_score_mean"]) == (56.8, 75.8)
    assert "WebShop" in (finished_copy.results("ci-both") / "report.html").read_text()


@pytest.mark.long
def test_a_wider_grid_adds_trials_and_retrains_what_then_chose_otherwise(finished_copy):
    """The fake trials win most with a rate of 1e-3."""
    methods = "methods: {grpo: {learning_rate: null}, threespo-calibrated: {learning_rate: null}}"

    def tuned(rates, name):
        tuning = f"tuning: {{learning_rates: [{rates}], generations: 100}}"
        config = ("study=ci", f"set={{seeds: [0], {methods}, {tuning}}}", f"name={name}")
        finished_copy.snakemake("--until", "tables", config=config)
        return [job.removeprefix("train ") for job in finished_copy.ran() if job.startswith("train")]

    runs = [run for run in RUNS if run.endswith("seed-0")]
    trials = [f"alfworld/tiny-s/{method}/rate" for method in ("grpo", "threespo-calibrated")]

    first = [f"{trial}-{rate}" for trial in trials for rate in ("0.0001-seed-1000", "0.01-seed-1000")]
    assert tuned("0.0001, 0.01", "two") == sorted([*first, *runs])
    assert tuned("0.0001, 0.01, 0.1", "three") == sorted(f"{trial}-0.1-seed-1000" for trial in trials), (
        "the choice stays"
    )
    assert tuned("0.0001, 0.001, 0.01, 0.1", "four") == sorted(
        [*(f"{trial}-0.001-seed-1000" for trial in trials), *runs]
    )
    table = pd.read_parquet(finished_copy.results("ci-four") / "tables" / "tuning.parquet")
    assert set(table.loc[table["chosen"], "learning_rate"]) == {1e-3}
    assert table.groupby("learning_rate")["success"].first().to_dict() == {
        1e-4: 50.0,
        1e-3: 75.0,
        1e-2: 50.0,
        0.1: 50.0,
    }


def test_what_a_killed_job_leaves_behind_does_not_stop_the_next(finished_copy):
    """A job that is killed after copying an earlier result leaves the copy, which Snakemake cannot overwrite."""
    left = (
        finished_copy.folder
        / ".snakemake"
        / "backups"
        / "results"
        / "ci"
        / "policy"
        / "alfworld"
        / "tiny-s"
    )
    left.mkdir(parents=True)
    (left / "policy.json").write_text("{}")
    (finished_copy.results() / "policy" / "alfworld" / "tiny-s" / "base" / "model.safetensors").unlink()
    done = finished_copy.snakemake("--until", "policy")
    assert done.returncode == 0, done.stderr
    assert finished_copy.ran() == ["policy tiny-s"]
    assert not left.exists()


@pytest.mark.long
def test_a_failed_choice_is_made_again(finished_copy):
    """It must not leave the rate of an earlier choice behind, as if it had been made."""
    config = (
        "study=ci",
        "set={methods: {grpo: {learning_rate: null}, threespo-calibrated: {learning_rate: null}}, "
        "tuning: {learning_rates: [0.0001, 0.001], generations: 100}}",
        "name=tuned",
    )
    finished_copy.snakemake("--until", "tune", config=config)
    module = finished_copy.folder / "threespo" / "runs" / "trials.py"
    whole = module.read_text()
    module.write_text(whole.replace("    added: list", "    raise SystemExit(1)\n    added: list"))
    assert finished_copy.snakemake("--until", "tune", config=config).returncode != 0
    module.write_text(whole + "\nCHANGED = 1\n")
    again = finished_copy.snakemake("--until", "tune", config=config)
    assert again.returncode == 0
    assert "Rule: tune" in again.stderr
    chosen = finished_copy.results("ci-tuned") / "tuning" / "alfworld" / "tiny-s" / "grpo.json"
    assert json.loads(chosen.read_text()) == {"learning_rate": 1e-3}


def test_prompting_rows_are_added_and_a_closed_model_without_a_key_has_no_number(
    finished_copy, monkeypatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    endpoint = "{kind: endpoint, stands_for: gpt-4o, endpoint: {model: gpt-4o, input_price: 2.5, output_price: 10}}"
    agents = "{react: {agent: react, policies: [tiny-s], paper_row: react}, closed: {agent: react, policies: [gpt]}}"
    config = ("study=ci", f"set={{policies: {{gpt: {endpoint}}}, agents: {agents}}}", "name=agents")
    done = finished_copy.snakemake(config=config)
    assert done.returncode == 0, done.stderr
    assert finished_copy.ran() == [
        "evaluate alfworld/gpt/closed/seed-0",
        "evaluate alfworld/tiny-s/react/seed-0",
    ]
    main = pd.read_parquet(finished_copy.results("ci-agents") / "tables" / "main.parquet")
    main = main.set_index(["policy", "method", "split"])
    assert main.loc[("gpt", "closed", "valid_seen"), "note"] == "not run (no API key)"
    assert main.loc[("tiny-s", "react", "valid_seen"), ["paper_mean", "kind"]].tolist() == [
        12.8,
        "prompted",
    ]
    report = (finished_copy.results("ci-agents") / "report.html").read_text()
    assert report.count("not run (no API key)") == 2
    assert not re.search(r"\bnan\b", re.sub(r"data:[^\"]+", "", report), re.IGNORECASE)


@pytest.mark.long
def test_tables_and_figures_are_the_same_bytes_in_another_folder(finished, checkout):
    checkout.snakemake(notebooks=True)
    for part in ("tables", "figures"):
        for path in sorted((finished.results() / part).iterdir()):
            if path.stem not in VARYING:
                assert path.read_bytes() == (checkout.results() / part / path.name).read_bytes(), (
                    path.name
                )


def threespo(checkout, *arguments):
    command = [sys.executable, "-m", "threespo.cli", *arguments]
    return subprocess.run(
        command, cwd=checkout.folder, env=checkout.environment(), capture_output=True, text=True
    )


def test_a_job_does_not_go_on_with_the_settings_of_another_call(finished_copy):
    command = [
        sys.executable,
        "-m",
        "threespo.cli",
        "tables",
        str(finished_copy.results() / "study.json"),
    ]
    environment = finished_copy.environment(THREESPO_STUDY_DIGEST="0" * 64)
    done = subprocess.run(
        command, cwd=finished_copy.folder, capture_output=True, text=True, env=environment
    )
    assert (done.returncode, "another snakemake call has changed the study" in done.stderr) == (2, True)


def test_why_refuses_what_no_command_makes(finished_copy):
    for target, said in (
        ("config", "not in a folder of results"),
        ("results/ci/logs/data", "no threespo command makes"),
    ):
        done = threespo(finished_copy, "why", target)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_the_report_says_what_each_stage_took(finished):
    stages = pd.read_parquet(finished.results() / "tables" / "stages.parquet")
    jobs = {"data": 1, "policy": 1, "train": 4, "evaluate": 6, "learning": 5, "probe": 1}
    assert stages.groupby("stage").size().to_dict() == jobs
    assert (stages["peak_memory_mb"] > 10).all()
    html = (finished.results() / "report.html").read_text()
    for part in ("sampling", "update", "environment", "method", "logging", "peak memory of a job"):
        assert f"<th>{part}</th>" in html
    grpo = '<a href="#main-alfworld-tiny-s-grpo">GRPO</a>'
    assert f"<tr><td>{grpo}</td><td>tiny-s</td><td>4.0</td>" in html


@pytest.mark.skipif(sys.platform != "linux", reason="jobs are forked on Linux only")
def test_jobs_are_forked_from_the_calls_own_server(finished):
    trained = [line for line in finished.log.read_text().splitlines() if line.startswith("train")]
    assert len(trained) == 4
    assert {line.split()[-1] for line in trained} == {"forked=True"}


def test_the_scheduler_wakes_when_a_job_ends_and_not_ever_more_often(checkout):
    """Each job that had ended woke it once more in every second, to look at the files of all jobs that wait."""
    done = checkout.snakemake("--verbose", "--until", "train", FAKE_SECONDS="3")
    assert done.returncode == 0, done.stderr
    ended = len(re.findall(r"^Finished jobid", done.stderr, re.MULTILINE))
    woken = len(re.findall(r"^Ready jobs", done.stderr, re.MULTILINE))
    assert ended >= 6
    assert woken <= ended + 2


@pytest.mark.long
def test_threads_come_from_the_study_and_not_from_the_scheduler(checkout):
    done = checkout.snakemake("--until", "train", config=("study=ci", "set={training: {threads: 4}}"))
    assert done.returncode == 0
    assert {
        line.split()[2] for line in checkout.log.read_text().splitlines() if line.startswith("train")
    } == {"threads=4"}


@pytest.mark.long
def test_a_failing_run_says_so_and_leaves_earlier_results(finished_copy):
    before = {path: path.read_bytes() for path in finished_copy.results().rglob("*.parquet")}
    report = (finished_copy.results() / "report.html").read_bytes()
    study = finished_copy.folder / "config" / "studies" / "ci.yaml"
    study.write_text(study.read_text().replace("generations: 300", "generations: 301"))
    done = finished_copy.snakemake(FAKE_FAIL=RUNS[0])
    assert done.returncode != 0
    assert "a truncated game file, as a test asked" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    run = finished_copy.results() / "runs" / RUNS[0]
    assert (run / "metrics.parquet").read_bytes() == before[run / "metrics.parquet"]
    assert (run / "weights" / "model.safetensors").is_file()
    assert (finished_copy.results() / "report.html").read_bytes() == report
    again = finished_copy.snakemake()
    assert again.returncode == 0
    # What it is evaluated with came out as before.
    assert finished_copy.ran() == [TRAIN[0]]


@pytest.mark.long
def test_a_killed_workflow_goes_on_after_unlocking(checkout):
    process = subprocess.Popen(
        checkout.command(), cwd=checkout.folder, env=checkout.environment(FAKE_SECONDS="60"), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _wait_for(lambda: checkout.log.is_file() and "train" in checkout.log.read_text())
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    refused = checkout.snakemake()
    assert (refused.returncode, "threespo unlock results/ci" in refused.stderr) == (2, True), (
        refused.stderr
    )
    unlocked = threespo(checkout, "unlock", "ci")
    assert unlocked.returncode == 0, unlocked.stderr
    done = checkout.snakemake("--until", "train")
    assert done.returncode == 0, done.stderr
    assert "data alfworld" not in checkout.ran()
    assert set(TRAIN) <= set(checkout.ran())


def test_jobs_in_their_own_process_get_the_study_that_was_resolved(finished_copy):
    # As a cluster node does: a second Snakemake for one job, without --resources and with another `auto`.
    metrics = finished_copy.results() / "runs" / RUNS[0] / "metrics.parquet"
    digest = file_digest(finished_copy.results() / "study.json")
    arguments = [
        "--mode",
        "subprocess",
        "--force",
        "--nolock",
        "--target-jobs",
        "train:env=alfworld,policy=tiny-s,method=grpo,which=seed-0",
    ]
    done = subprocess.run(
        finished_copy.command(*arguments, config=("study=auto",)),
        cwd=finished_copy.folder,
        env=finished_copy.environment(THREESPO_STUDY_FOLDER="results/ci", THREESPO_STUDY_DIGEST=digest),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert metrics.is_file()
    assert not (finished_copy.folder / "results" / "smoke").exists()


@pytest.mark.parametrize(
    ("resources", "study"),
    [((), "smoke"), (("--resources", "gpu=2"), "paper-core"), (("--resources", "gpu=4"), "paper")],
)
def test_the_study_follows_from_the_gpus(checkout, resources, study):
    done = checkout.snakemake("--dry-run", *resources, config=("study=auto",))
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("threespo:")]
    assert f"study '{study}', chosen because" in lines[0]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (("study=smok",), "study 'smok'"),
        (
            ("study=ci", "set={gpus_per_rank: 1}"),
            "gpus_per_rank is 1 and ranks_per_run up to 1, but --resources gpu=0",
        ),
        (("study=ci", "alfworld=nowhere"), "alfworld=nowhere: no such folder"),
        (("study=ci", "set={training: {generation: 5}}"), "training.generation: no such field"),
        (("study=ci", "polici_build=true"), "--config polici_build: no such key"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_two(checkout, config, said):
    done = checkout.snakemake(config=config)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not checkout.ran()


@pytest.mark.long
def test_real_games_have_their_own_results_and_count_by_content(finished_copy, tmp_path):
    games = tmp_path / "games"
    games.mkdir()
    for name in ("train.jsonl", "valid_seen.jsonl", "valid_unseen.jsonl", "alfred.pddl", "grammar.twl2"):
        (games / name).write_text(name)
    config = ("study=ci", f"alfworld={games}")
    done = finished_copy.snakemake("--until", "evaluate", config=config)
    assert done.returncode == 0, done.stderr
    assert (finished_copy.results("ci-games") / "runs" / RUNS[0] / "evaluation.parquet").is_file()
    moved = tmp_path / "moved"
    shutil.copytree(games, moved)
    finished_copy.snakemake("--until", "evaluate", config=("study=ci", f"alfworld={moved}"))
    assert finished_copy.ran() == []
    (moved / "train.jsonl").write_text("other games")
    finished_copy.snakemake("--until", "data", config=("study=ci", f"alfworld={moved}"))
    assert "data alfworld" in finished_copy.ran()


def _wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
