# From games to the report. `snakemake --cores all`; everything that can be asked for stands in config/README.md.
#
# The main process decides once which study is meant and writes it to results/STUDY/study.json. Jobs get that file.
# Every rule calls one `threespo` command; what reruns it are its inputs' contents and its params: the fingerprint of its
# code, and those fields of the study that matter to it.

import os
import shlex
import shutil
import sys
from pathlib import Path

from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/laboratory.smk"
include: "workflow/rules/results.smk"


# A killed job leaves the copies behind that Snakemake makes of `update` outputs, and the next one stumbles over them. They are
# not needed: what a stage writes is whole or absent. This runs once the lock is held, and not in a dry run.
onstart:
    if workflow.is_main_process:
        shutil.rmtree(workflow.persistence.path / "backups", ignore_errors=True)


# Every job's marker is a target of its own: Snakemake does not miss an intermediate file whose successors exist, so a failed
# job that left its earlier result in place would otherwise never run again.
rule all:
    default_target: True
    input:
        PATHS.report,
        MARKERS,
        EXECUTED_NOTEBOOKS,


localrules:
    all,
