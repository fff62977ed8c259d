# Methods on decision trees, where success is computed and a hundred seeds take a minute. `snakemake laboratory` makes no more.


rule trees:
    output:
        str(PATHS.laboratory("{family}", "{method}")),
    params:
        code=lambda wildcards: stages.code("laboratory", STUDY, wildcards.method),
        settings=lambda wildcards: stages.laboratory_settings(STUDY, wildcards.family, wildcards.method),
    log:
        log_of("laboratory/{family}/{method}"),
    shell:
        "OMP_NUM_THREADS=1 {THREESPO} laboratory {PATHS.study} --family {wildcards.family} --method {wildcards.method}"
        " 2>&1 | tee {log}"


rule laboratory:
    input:
        [str(PATHS.laboratory(*row)) for row in laboratory_rows(STUDY)],


localrules:
    laboratory,
