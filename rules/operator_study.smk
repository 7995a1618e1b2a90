# Operator study: children of every operator from the same parents, trained side by side.
#
# Needs: the last bundle of every run of one arm. Makes: tables of every scored step; a table of operators, the curves.


rule operator_children:
    input:
        bundle=study_bundle,
    output:
        changes=f"{STUDIES}/seed{{seed}}-repeat{{repeat}}/step{STUDY.steps:05d}/changes.parquet",
    log:
        f"{STUDIES}/logs/seed{{seed}}-repeat{{repeat}}.log",
    conda:
        "../envs/popu.yaml"
    threads: CONFIG.engine.threads
    resources:
        gpu=GPU,
    params:
        run=study_run,
        step=study_step,
        out=folder_above,
        settings=STUDY.model_dump_json(),
        popu=POPU,
    shell:
        "{params.popu} operator-study --run {params.run} --step {params.step} --repeat {wildcards.repeat}"
        " --settings {params.settings:q} --out {params.out} > {log} 2>&1"


rule operator_table:
    input:
        changes=study_tables,
    output:
        tables=[
            report(
                f"{STUDIES}/{name}.csv",
                category="Operators",
                caption=f"../docs/captions/{name}.rst",
            )
            for name in ("operators", "changes")
        ],
        figure=report(
            f"{STUDIES}/recovery.png",
            category="Operators",
            caption="../docs/captions/recovery.rst",
        ),
    log:
        f"{STUDIES}/logs/table.log",
    conda:
        "../envs/popu.yaml"
    params:
        study=folder,
        popu=POPU,
    shell:
        "{params.popu} operator-report --study {params.study} > {log} 2>&1"
