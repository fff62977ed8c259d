# The workflow, from the repository's top: `snakemake --cores all`. Its rules lie in workflow/Snakefile.


include: "workflow/Snakefile"


# An included file does not say what is made by default.
rule default:
    default_target: True
    input:
        rules.all.input,


localrules:
    default,
