# Tasks and base policies.


rule data:
    input:
        unpack(reads("data")),
    output:
        **writes("data"),
    log:
        log_of("data"),
    params:
        threespo=THREESPO,
        study=STUDY_FILE,
    shell:
        "{params.threespo} data {params.study} --env {wildcards.env} 2>&1 | tee {log:q}"


rule policy:
    input:
        unpack(reads("policy")),
    output:
        **writes("policy"),
    log:
        log_of("policy"),
    threads: THREADS
    resources:
        # A warm start is training; a recipe of tiny policies needs no GPU.
        gpu=gpus_for("policy"),
        mem_mb=memory_for("policy"),
        runtime=minutes_for("policy"),
        nodes=nodes_for("policy"),
    params:
        threespo=THREESPO,
        study=STUDY_FILE,
        threads=THREADS,
    shell:
        "OMP_NUM_THREADS={params.threads} {params.threespo} policy {params.study}"
        " --env {wildcards.env} --policy {wildcards.policy} 2>&1 | tee {log:q}"
