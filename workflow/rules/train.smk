# The runs of the matrix. Checkpoints lie outside of any output, so that a killed run goes on from its last one. The number of
# threads is the study's and never the scheduler's: bytes must not depend on the machine's load.


rule train:
    input:
        unpack(reads("train")),
    output:
        **writes("train"),
    log:
        log_of("train"),
    threads: lambda wildcards: THREADS * job_of("train", wildcards).settings(STUDY, PATHS).ranks
    resources:
        gpu=gpus_for("train"),
        mem_mb=memory_for("train"),
        runtime=minutes_for("train"),
        nodes=nodes_for("train"),
    params:
        run=lambda wildcards: job_of("train", wildcards).name,
        threespo=THREESPO,
        study=STUDY_FILE,
        threads=THREADS,
    shell:
        "OMP_NUM_THREADS={params.threads} {params.threespo} train {params.study} --run {params.run} 2>&1 | tee {log:q}"


# Trials are runs like others, on the study's grid of learning rates, evaluated on the calibration tasks. Those beyond an edge of
# the grid this job trains and evaluates itself: which ones there are is not known before.
rule tune:
    input:
        unpack(reads("tune")),
    output:
        **writes("tune"),
    log:
        log_of("tune"),
    threads: lambda wildcards: THREADS * job_of("tune", wildcards).settings(STUDY, PATHS).ranks
    resources:
        gpu=gpus_for("tune"),
        mem_mb=memory_for("tune"),
        runtime=minutes_for("tune"),
        nodes=nodes_for("tune"),
    params:
        threespo=THREESPO,
        study=STUDY_FILE,
        threads=THREADS,
    shell:
        "OMP_NUM_THREADS={params.threads} {params.threespo} tune {params.study}"
        " --env {wildcards.env} --policy {wildcards.policy} --method {wildcards.method} 2>&1 | tee {log:q}"


# The run's snapshots, and the untrained policies, on unseen games.
rule learning:
    input:
        unpack(reads("learning")),
    output:
        **writes("learning"),
    log:
        log_of("learning"),
    threads: THREADS
    resources:
        gpu=gpus_for("learning"),
        mem_mb=memory_for("learning"),
        runtime=minutes_for("learning"),
        nodes=nodes_for("learning"),
    params:
        run=lambda wildcards: job_of("learning", wildcards).name,
        threespo=THREESPO,
        study=STUDY_FILE,
        threads=THREADS,
    shell:
        "OMP_NUM_THREADS={params.threads} {params.threespo} learning {params.study} --run {params.run} 2>&1 | tee {log:q}"


# True success probabilities beside the state scores, at the run's snapshots.
rule probe:
    input:
        unpack(reads("probe")),
    output:
        **writes("probe"),
    log:
        log_of("probe"),
    threads: THREADS
    resources:
        gpu=gpus_for("probe"),
        mem_mb=memory_for("probe"),
        runtime=minutes_for("probe"),
        nodes=nodes_for("probe"),
    params:
        run=lambda wildcards: job_of("probe", wildcards).name,
        threespo=THREESPO,
        study=STUDY_FILE,
        threads=THREADS,
    shell:
        "OMP_NUM_THREADS={params.threads} {params.threespo} probe {params.study} --run {params.run} 2>&1 | tee {log:q}"


rule evaluate:
    input:
        unpack(reads("evaluate")),
    output:
        **writes("evaluate"),
    log:
        log_of("evaluate"),
    threads: THREADS
    resources:
        gpu=gpus_for("evaluate"),
        mem_mb=memory_for("evaluate"),
        runtime=minutes_for("evaluate"),
        nodes=nodes_for("evaluate"),
    params:
        run=lambda wildcards: job_of("evaluate", wildcards).name,
        threespo=THREESPO,
        study=STUDY_FILE,
        threads=THREADS,
    shell:
        "OMP_NUM_THREADS={params.threads} {params.threespo} evaluate {params.study} --run {params.run} 2>&1 | tee {log:q}"
