# Evolution: rate the pairs of every step and, when due, replace the weakest.
#
# Needs: the updated adapters. Makes: the state after the step. In `block` granularity the block does this too.

if CONFIG.granularity == "stage":

    rule evolve:
        input:
            adapters=ancient(f"{RUN}/step{{step}}/update.json"),
        output:
            manifest=f"{RUN}/step{{step}}/evolve.json",
        log:
            f"{RUN}/logs/step{{step}}.evolve.log",
        conda:
            "../envs/popu.yaml"
        params:
            run=run_folder,
            popu=POPU,
        shell:
            "{params.popu} stage evolve --run {params.run} --step {wildcards.step} > {log} 2>&1"
