# Report: the experiment at a glance, and one page to read.
#
# Needs: the held-out tables and the dynamics of all runs. Makes: summary.json, summary.md and summary.png; report/ with
# index.html, tables and figures.


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


rule page:
    input:
        bundles=last_bundles(),
        heldout=heldout_tables,
        dynamics=dynamics_tables(),
        crossplay=crossplay_table(),
        benchmarks=benchmark_scores(),
    output:
        page=report(
            f"{EXPERIMENT}/report/index.html",
            category="Report",
            caption="../docs/captions/page.rst",
        ),
        figures=[
            report(
                f"{EXPERIMENT}/report/figures/{name}.png",
                category="Figures",
                caption=f"../docs/captions/{name.partition('-')[0]}.rst",
            )
            for name in report_figures()
        ],
        tables=[
            report(
                f"{EXPERIMENT}/report/tables/{name}.csv",
                category="Tables",
                caption=f"../docs/captions/{name.partition('-')[0]}.rst",
            )
            for name in (
                *(
                    "claims",
                    "main",
                    "differences",
                    "differences-4t4s",
                    "iqm",
                    "ablations",
                    "specialisation",
                ),
                *("children", "culls", "phase", "cost"),
            )
        ],
    log:
        f"{EXPERIMENT}/logs/report.log",
    conda:
        "../envs/popu.yaml"
    params:
        experiment=folder_above,
        out=folder,
        popu=POPU,
    shell:
        "{params.popu} report --experiment {params.experiment} --out {params.out} > {log} 2>&1"
