# Evaluation: the held-out suite of grammar problems at the end of a run, and cross-play of all runs.
#
# Needs: bundles. Makes: a table of a row a member and task; of a row a teacher, student and pair of times.


rule heldout:
    input:
        state=ancient(f"{RUN}/checkpoints/step{{step}}/manifest.json"),
    output:
        table=f"{RUN}/heldout/step{{step}}.parquet",
    log:
        f"{RUN}/logs/step{{step}}.heldout.log",
    conda:
        "../envs/popu.yaml"
    threads: CONFIG.engine.threads
    resources:
        gpu=GPU,
    params:
        run=run_folder,
        popu=POPU,
        tasks=CONFIG.heldout.tasks_per_level,
        samples=CONFIG.heldout.samples,
    shell:
        "{params.popu} stage heldout --run {params.run} --step {wildcards.step} --tasks-per-level {params.tasks}"
        " --samples {params.samples} > {log} 2>&1"


rule crossplay:
    input:
        bundles=last_bundles(),
    output:
        table=f"{EXPERIMENT}/crossplay.parquet",
    log:
        f"{EXPERIMENT}/logs/crossplay.log",
    conda:
        "../envs/popu.yaml"
    threads: CONFIG.engine.threads
    resources:
        gpu=GPU,
    params:
        experiment=folder,
        popu=POPU,
        problems=CONFIG.crossplay.problems,
        samples=CONFIG.crossplay.samples,
        times=CONFIG.crossplay.times,
    shell:
        "{params.popu} crossplay --experiment {params.experiment} --problems {params.problems}"
        " --samples {params.samples} --times {params.times} > {log} 2>&1"
