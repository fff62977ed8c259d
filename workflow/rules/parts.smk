# The parts of a study (the field `parts` of its rows) as targets: their runs, evaluated. `snakemake --cores all ablation`.
# Tables and report show the whole study; config/README.md says how to have them of one part.


rule main:
    input:
        outputs_of("main"),


rule ablation:
    input:
        outputs_of("ablation"),


rule sensitivity:
    input:
        outputs_of("sensitivity"),


rule figures:
    input:
        outputs_of("figures"),


localrules:
    main,
    ablation,
    sensitivity,
    figures,
