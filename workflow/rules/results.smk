# Tables, executed notebooks, the report.


rule tables:
    input:
        unpack(reads("tables")),
    output:
        **writes("tables"),
    log:
        log_of("tables"),
    params:
        threespo=THREESPO,
        study=STUDY_FILE,
    shell:
        "{params.threespo} tables {params.study} 2>&1 | tee {log:q}"


# A notebook loads tables and draws them. Figures have names of their own, so each notebook is a rule.
for NOTEBOOK in STAGES["notebook"].jobs(STUDY):

    rule:
        name:
            f"notebook_{NOTEBOOK}"
        input:
            unpack(reads("notebook", NOTEBOOK)),
        output:
            **writes("notebook", NOTEBOOK),
        log:
            str(PATHS.log("notebook", NOTEBOOK)),
        params:
            notebook=NOTEBOOK,
            threespo=THREESPO,
            study=STUDY_FILE,
        shell:
            "{params.threespo} notebook {params.study} --name {params.notebook} > {log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}"


rule report:
    input:
        unpack(reads("report")),
    output:
        **writes("report"),
    log:
        log_of("report"),
    params:
        threespo=THREESPO,
        study=STUDY_FILE,
    shell:
        "{params.threespo} report {params.study} 2>&1 | tee {log:q}"
