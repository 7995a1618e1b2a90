# Benchmarks: all members of each run's last checkpoint, and the bare base, on the suites of the config.
#
# Needs: bundles, and the suites' data. Makes: completions a shard of tasks, all members in one batch; scores a benchmark.


wildcard_constraints:
    benchmark=r"[\w.-]+",
    shard=r"\d+",
    shards=r"\d+",


rule benchmark_complete:
    input:
        state=ancient(f"{RUN}/checkpoints/step{{step}}/manifest.json"),
    output:
        table=f"{BENCHMARK}/generations/{{shard}}-of-{{shards}}.parquet",
    log:
        f"{RUN}/logs/step{{step}}.{{benchmark}}.{{shard}}-of-{{shards}}.log",
    conda:
        "../envs/popu.yaml"
    threads: CONFIG.engine.threads
    resources:
        gpu=GPU,
    params:
        bundle=lambda wildcards, input: os.path.dirname(input.state),
        flags=benchmark_flags,
        popu=POPU,
    shell:
        "{params.popu} benchmark complete --bundle {params.bundle} --shard {wildcards.shard}"
        " --shards {wildcards.shards} {params.flags} --out {output.table} > {log} 2>&1"


rule benchmark_score:
    input:
        tables=generation_shards,
    output:
        table=f"{BENCHMARK}/scores.parquet",
    log:
        f"{RUN}/logs/step{{step}}.{{benchmark}}.score.log",
    conda:
        "../envs/popu.yaml"
    threads: CONFIG.engine.threads
    params:
        flags=benchmark_flags,
        popu=POPU,
    shell:
        "{params.popu} benchmark score --generations {input.tables} --threads {threads} {params.flags}"
        " --out {output.table} > {log} 2>&1"
