# PopuLoRA: populations of teacher and student LoRA adapters co-evolve on one frozen base.
#
#   snakemake --cores all train_all                                  the default experiment
#   snakemake train_all --cores all --configfile config/smollm2.yaml another one
#   snakemake evaluate_all --cores all --configfile config/x.yaml    score its runs on the benchmarks of the config
#   snakemake --cores all operator_study                             children of every operator, trained side by side
#   snakemake --cores all pretrain_nano                              make the embedded base anew
import sys

from snakemake.utils import min_version

min_version("9.0")
sys.setrecursionlimit(100_000)  # a chain of some 450 jobs ends at Python's default


configfile: "config/config.yaml"


include: "rules/common.smk"
include: "rules/base.smk"
include: "rules/selfplay.smk"
include: "rules/evolution.smk"
include: "rules/checkpoint.smk"
include: "rules/evaluate.smk"
include: "rules/benchmarks.smk"
include: "rules/dynamics.smk"
include: "rules/report.smk"
include: "rules/operator_study.smk"


# Seconds of reading and copying: on a cluster not worth a place in the queue.
localrules:
    checkpoint,
    summary,
    page,
    operator_table,


rule train_all:
    default_target: True
    input:
        bundles=last_bundles(),
        summary=summary_files(),
        page=f"{EXPERIMENT}/report/index.html",


rule evaluate_all:
    input:
        scores=wanted_scores,
        page=f"{EXPERIMENT}/report/index.html",


rule operator_study:
    input:
        study_files,


rule pretrain_nano:
    input:
        card=f"{NANO}/base/card.json",
