# Report: the experiment at a glance.
#
# Needs: the held-out tables and the dynamics of all runs. Makes: summary.json, summary.md and summary.png.


rule summary:
    input:
        bundles=last_bundles(),
        heldout=heldout_tables,
        dynamics=dynamics_tables(),
    output:
        summary_files(),
    log:
        f"{EXPERIMENT}/logs/summary.log",
    conda:
        "../envs/popu.yaml"
    params:
        experiment=folder,
        popu=POPU,
    shell:
        "{params.popu} summary --experiment {params.experiment} > {log} 2>&1"
