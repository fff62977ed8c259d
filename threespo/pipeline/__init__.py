"""From a study to its jobs: one file a stage, what has to run, and the adapter to Snakemake."""
