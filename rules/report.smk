# Report: the experiment at a glance.
#
# Needs: the held-out tables of all runs. Makes: summary.json, summary.md and summary.png.


def heldout_tables(_wildcards=None):
    if not CONFIG.heldout.tasks_per_level:
        return []
    return [
        f"{EXPERIMENT}/{run}/seed{seed}/heldout/step{steps_of(run):05d}.parquet"
        for run in RUNS
        for seed in CONFIG.seeds
    ]


def summary_files():
    return [f"{EXPERIMENT}/summary.{ending}" for ending in ("json", "md", "png")]


rule summary:
    input:
        bundles=[bundle(run, seed, steps_of(run)) for run in RUNS for seed in CONFIG.seeds],
        heldout=heldout_tables,
    output:
        summary_files(),
    log:
        f"{EXPERIMENT}/logs/summary.log",
    params:
        experiment=EXPERIMENT,
        popu=POPU,
    shell:
        "{params.popu} summary --experiment {params.experiment} > {log} 2>&1"
