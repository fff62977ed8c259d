# The parts of a study (the field `parts` of its rows) as targets: their runs, evaluated. `snakemake --cores all ablation`.
# Tables and report show the whole study; config/README.md says how to have them of one part.


def part(name):
    def outputs(_):
        try:
            wanted = jobs_of(STUDY, name)
        except InputError as error:
            refuse(error)
        return [str(path) for job in wanted for path in job.outputs(PATHS).paths()]

    return outputs


rule main:
    input:
        part("main"),


rule ablation:
    input:
        part("ablation"),


rule sensitivity:
    input:
        part("sensitivity"),


rule figures:
    input:
        part("figures"),


localrules:
    main,
    ablation,
    sensitivity,
    figures,
