# Evaluation: the held-out suite of grammar problems at the end of a run.
#
# Needs: the bundle of the last step. Makes: a table of a row a member and task.


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
        device=1,
    params:
        run=run_folder,
        popu=POPU,
        tasks=CONFIG.heldout.tasks_per_level,
        samples=CONFIG.heldout.samples,
    shell:
        "{params.popu} stage heldout --run {params.run} --step {wildcards.step} --tasks-per-level {params.tasks}"
        " --samples {params.samples} > {log} 2>&1"
