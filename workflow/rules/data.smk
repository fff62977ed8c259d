# Games and base policies.
#
# `update`: a job that fails leaves the earlier result as it was. One output of each rule is declared without it, and so is
# missing after a failure: that is how the next invocation knows that the job has to run again.


rule data:
    output:
        folder=update(directory(str(PATHS.data("{env}")))),
        contents=marker_of(PATHS.data("{env}")),
    params:
        code=lambda wildcards: stages.code("data", STUDY, env=wildcards.env),
        settings=lambda wildcards: stages.data_settings(STUDY, wildcards.env),
    log:
        log_of("data/{env}"),
    shell:
        "{THREESPO} data {PATHS.study} --env {wildcards.env} 2>&1 | tee {log}"


rule policy:
    input:
        games=marker_of(PATHS.data("{env}")),
        folder=ancient(str(PATHS.data("{env}"))),
    output:
        folder=update(directory(str(PATHS.policy("{env}", "{policy}")))),
        contents=marker_of(PATHS.policy("{env}", "{policy}")),
    params:
        code=lambda wildcards: stages.code("policy", STUDY, env=wildcards.env),
        settings=lambda wildcards: stages.policy_settings(STUDY, wildcards.env, wildcards.policy),
        threads=THREADS,
    threads: THREADS
    log:
        log_of("policy/{env}/{policy}"),
    shell:
        "OMP_NUM_THREADS={params.threads} {THREESPO} policy {PATHS.study} --env {wildcards.env} --policy {wildcards.policy}"
        " 2>&1 | tee {log}"
