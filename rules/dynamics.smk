# Dynamics: what happened in a run, step by step.
#
# Needs: the bundle of the last step (and reads those before). Makes: tables of metrics a step, a member and a match, and
# of members in weight space.


rule dynamics:
    input:
        state=ancient(f"{RUN}/checkpoints/step{{step}}/manifest.json"),
    output:
        tables=[
            f"{RUN}/dynamics/step{{step}}/{name}.parquet"
            for name in ("dynamics", "member_dynamics", "pairs", "weights")
        ],
    log:
        f"{RUN}/logs/step{{step}}.dynamics.log",
    conda:
        "../envs/popu.yaml"
    params:
        run=run_folder,
        popu=POPU,
    shell:
        "{params.popu} stage dynamics --run {params.run} --step {wildcards.step} > {log} 2>&1"
