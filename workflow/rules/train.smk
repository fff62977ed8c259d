# The runs of the matrix. Checkpoints lie in PATHS.checkpoints, outside of any output, so that a killed run goes on from its
# last one. The number of threads is the study's and never the scheduler's: it must not depend on the machine's load.

RUN = str(PATHS.root / "runs" / "{env}" / "{policy}" / "{method}" / "{which}")


def run_of(wildcards):
    return RUNS[f"{wildcards.env}/{wildcards.policy}/{wildcards.method}/{wildcards.which}"]


def weights_of(wildcards):
    """What an evaluation judges: the run's weights, those of its policy, or a closed model, which has none here."""
    run = run_of(wildcards)
    own, policy = PATHS.run(run) / "weights", PATHS.policy(run.env, run.policy)
    folder = {"run": own, "policy": policy}.get(plays_weights_of(STUDY, run))
    return {"weights": ancient(str(folder)), "contents": marker_of(folder)} if folder else {}


def choice_of(wildcards):
    """The file with a run's learning rate, where trials decide it: known only when they have ended."""
    run = run_of(wildcards)
    if STUDY.tuning is None or run.rate is not None:
        return []
    return ancient(checkpoints.choose.get(env=run.env, policy=run.policy, method=run.method).output[0])


rule train:
    input:
        choice=choice_of,
        games=marker_of(PATHS.data("{env}")),
        data=ancient(str(PATHS.data("{env}"))),
        base=marker_of(PATHS.policy("{env}", "{policy}")),
        policy=ancient(str(PATHS.policy("{env}", "{policy}"))),
    output:
        metrics=update(RUN + "/metrics.parquet"),
        timing=update(RUN + "/timing.parquet"),
        task_types=update(RUN + "/task_types.parquet"),
        trees=update(RUN + "/trees.parquet"),
        weights=update(directory(RUN + "/weights")),
        contents=marker_of(RUN + "/weights"),
        snapshots=update(directory(RUN + "/snapshots")),
        kept=marker_of(RUN + "/snapshots"),
    params:
        code=lambda wildcards: stages.code("train", STUDY, run_of(wildcards)),
        settings=lambda wildcards: stages.train_settings(STUDY, run_of(wildcards)),
        # What was chosen counts, and not that it was chosen again.
        chosen=lambda wildcards: choice_of(wildcards) and Path(choice_of(wildcards)).read_text(),
        run=lambda wildcards: run_of(wildcards).run_id,
        threads=THREADS,
    threads: THREADS
    resources:
        gpu=STUDY.gpus_per_run,
    log:
        log_of("train/{env}/{policy}/{method}/{which}"),
    shell:
        "OMP_NUM_THREADS={params.threads} {THREESPO} train {PATHS.study} --run {params.run} 2>&1 | tee {log}"


# Trials are runs like others, on the study's grid of learning rates, judged on the calibration games.
checkpoint choose:
    input:
        lambda wildcards: [str(PATHS.run(run) / "evaluation.parquet") for run in trials_of(STUDY, **wildcards)],
    output:
        str(PATHS.choice("{env}", "{policy}", "{method}")),
    params:
        code=lambda wildcards: stages.code("choose", STUDY),
        settings=lambda wildcards: stages.choose_settings(STUDY, **wildcards),
    log:
        log_of("choose/{env}/{policy}/{method}"),
    shell:
        "{THREESPO} choose {PATHS.study} --env {wildcards.env} --policy {wildcards.policy} --method {wildcards.method}"
        " 2>&1 | tee {log}"


# True success probabilities beside the state scores, at the run's snapshots.
rule probe:
    input:
        snapshots=ancient(RUN + "/snapshots"),
        kept=marker_of(RUN + "/snapshots"),
        games=marker_of(PATHS.data("{env}")),
        data=ancient(str(PATHS.data("{env}"))),
    output:
        RUN + "/probe.parquet",
    params:
        code=lambda wildcards: stages.code("probe", STUDY, env=wildcards.env),
        settings=lambda wildcards: stages.probe_settings(STUDY, run_of(wildcards)),
        run=lambda wildcards: run_of(wildcards).run_id,
        threads=THREADS,
    threads: THREADS
    resources:
        gpu=STUDY.gpus_per_run,
    log:
        log_of("probe/{env}/{policy}/{method}/{which}"),
    shell:
        "OMP_NUM_THREADS={params.threads} {THREESPO} probe {PATHS.study} --run {params.run} 2>&1 | tee {log}"


rule evaluate:
    input:
        unpack(weights_of),
        games=marker_of(PATHS.data("{env}")),
        data=ancient(str(PATHS.data("{env}"))),
    output:
        episodes=update(RUN + "/evaluation.parquet"),
        timing=RUN + "/evaluation_timing.parquet",
    params:
        code=lambda wildcards: stages.code("evaluate", STUDY, env=wildcards.env),
        settings=lambda wildcards: stages.evaluate_settings(STUDY, run_of(wildcards), PATHS),
        run=lambda wildcards: run_of(wildcards).run_id,
        threads=THREADS,
    threads: THREADS
    resources:
        gpu=lambda wildcards: gpus_of(STUDY, run_of(wildcards)),
    log:
        log_of("evaluate/{env}/{policy}/{method}/{which}"),
    shell:
        "OMP_NUM_THREADS={params.threads} {THREESPO} evaluate {PATHS.study} --run {params.run} 2>&1 | tee {log}"
