# Self-play: the chain of stages of every step.
#
# Needs: the state after the step before. Makes: one manifest a stage, beside the files that it lists.
# `ancient` on every edge of the chain: what is finished is never redone because of a file's time.


rule init:
    input:
        base=made_base,
    output:
        manifest=f"{RUN}/step00000/init.json",
    log:
        f"{RUN}/logs/init.log",
    conda:
        "../envs/popu.yaml"
    threads: CONFIG.engine.threads
    resources:
        gpu=GPU,
    params:
        run=run_folder,
        popu=POPU,
        settings=settings_json,
    shell:
        "{params.popu} stage init --run {params.run} --step 0 --settings {params.settings:q} > {log} 2>&1"


if CONFIG.granularity == "stage":

    rule propose:
        input:
            state=state_before,
        output:
            manifest=f"{RUN}/step{{step}}/propose.json",
        log:
            f"{RUN}/logs/step{{step}}.propose.log",
        conda:
            "../envs/popu.yaml"
        threads: CONFIG.engine.threads
        resources:
            gpu=GPU,
        params:
            run=run_folder,
            popu=POPU,
        shell:
            "{params.popu} stage propose --run {params.run} --step {wildcards.step} > {log} 2>&1"

    rule validate:
        input:
            proposals=ancient(f"{RUN}/step{{step}}/propose.json"),
        output:
            manifest=f"{RUN}/step{{step}}/validate.json",
        log:
            f"{RUN}/logs/step{{step}}.validate.log",
        conda:
            "../envs/popu.yaml"
        params:
            run=run_folder,
            popu=POPU,
        shell:
            "{params.popu} stage validate --run {params.run} --step {wildcards.step} > {log} 2>&1"

    rule solve:
        input:
            problems=ancient(f"{RUN}/step{{step}}/validate.json"),
        output:
            manifest=f"{RUN}/step{{step}}/solve.json",
        log:
            f"{RUN}/logs/step{{step}}.solve.log",
        conda:
            "../envs/popu.yaml"
        threads: CONFIG.engine.threads
        resources:
            gpu=GPU,
        params:
            run=run_folder,
            popu=POPU,
        shell:
            "{params.popu} stage solve --run {params.run} --step {wildcards.step} > {log} 2>&1"

    rule verify:
        input:
            rollouts=ancient(f"{RUN}/step{{step}}/solve.json"),
        output:
            manifest=f"{RUN}/step{{step}}/verify.json",
        log:
            f"{RUN}/logs/step{{step}}.verify.log",
        conda:
            "../envs/popu.yaml"
        params:
            run=run_folder,
            popu=POPU,
        shell:
            "{params.popu} stage verify --run {params.run} --step {wildcards.step} > {log} 2>&1"

    rule update:
        input:
            verdicts=ancient(f"{RUN}/step{{step}}/verify.json"),
        output:
            manifest=f"{RUN}/step{{step}}/update.json",
        log:
            f"{RUN}/logs/step{{step}}.update.log",
        conda:
            "../envs/popu.yaml"
        threads: CONFIG.engine.threads
        resources:
            gpu=GPU,
        params:
            run=run_folder,
            popu=POPU,
        shell:
            "{params.popu} stage update --run {params.run} --step {wildcards.step} > {log} 2>&1"

else:

    rule block:
        input:
            state=block_before,
        output:
            manifest=f"{RUN}/step{{step}}/evolve.json",
        log:
            f"{RUN}/logs/step{{step}}.block.log",
        conda:
            "../envs/popu.yaml"
        threads: CONFIG.engine.threads
        resources:
            gpu=GPU,
        params:
            run=run_folder,
            popu=POPU,
            first=block_first,
        shell:
            "{params.popu} block --run {params.run} --first {params.first} --last {wildcards.step} > {log} 2>&1"
