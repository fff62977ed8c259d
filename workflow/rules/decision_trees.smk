# Methods on decision trees, where success is computed and a hundred seeds take a minute.


rule decision_trees:
    input:
        unpack(reads("decision_trees")),
    output:
        **writes("decision_trees"),
    log:
        log_of("decision_trees"),
    params:
        threespo=THREESPO,
        study=STUDY_FILE,
    shell:
        "OMP_NUM_THREADS=1 {params.threespo} decision-trees {params.study}"
        " --family {wildcards.family} --method {wildcards.method} 2>&1 | tee {log:q}"


# The study's section `laboratory`, and nothing else: `snakemake --cores all laboratory`.
rule laboratory:
    input:
        [str(path) for job in list_jobs(STUDY) if job.stage == "decision_trees" for path in job.outputs(PATHS).paths()],


localrules:
    laboratory,
