# Checkpoints: bundles that stand alone.
#
# Needs: the state after a step. Makes: checkpoints/step<n>/ with a manifest of every file.


rule checkpoint:
    input:
        state=ancient(f"{RUN}/step{{step}}/evolve.json"),
    output:
        manifest=f"{RUN}/checkpoints/step{{step}}/manifest.json",
    log:
        f"{RUN}/logs/step{{step}}.checkpoint.log",
    conda:
        "../envs/popu.yaml"
    params:
        run=run_folder,
        popu=POPU,
    shell:
        "{params.popu} stage checkpoint --run {params.run} --step {wildcards.step} > {log} 2>&1"
