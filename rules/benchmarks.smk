# Benchmarks: all members of each run's last checkpoint, and the bare base, on the suites of the config.
#
# Needs: bundles, and the suites' data. Makes: completions a shard of tasks, all members in one batch; scores a benchmark.
BENCHMARK = f"{RUN}/benchmarks/step{{step}}/{{benchmark}}"


def _benchmarks():
    if not CONFIG.evaluation.suites:
        return {}
    from popu.evaluate.benchmark import benchmarks

    try:
        return benchmarks(CONFIG.evaluation)
    except (ConfigError, ArtifactError) as error:
        print(f"popu: {error}", file=sys.stderr, flush=True)
        os._exit(2)


BENCHMARKS = _benchmarks()


wildcard_constraints:
    benchmark=r"[\w.-]+",
    shard=r"\d+",
    shards=r"\d+",


def benchmark_flags(wildcards):
    """The benchmark as the command line takes it."""
    item = BENCHMARKS[wildcards.benchmark]
    flags = [
        f"--suite {item.suite}" + (f"@{item.samples}" if item.samples > 1 else ""),
        f"--max-new-tokens {item.max_new_tokens}",
        f"--temperature {CONFIG.evaluation.temperature}",
    ]
    if item.limit:
        flags.append(f"--limit {item.limit}")
    if CONFIG.evaluation.data_dir:
        flags.append(f"--data-dir {CONFIG.evaluation.data_dir}")
    return " ".join(flags)


def generation_shards(wildcards):
    n = CONFIG.evaluation.shards
    return [
        f"{BENCHMARK}/generations/{k}-of-{n}.parquet".format(**wildcards)
        for k in range(n)
    ]


def benchmark_scores():
    return [
        f"{EXPERIMENT}/{run}/seed{seed}/benchmarks/step{steps_of(run):05d}/{name}/scores.parquet"
        for run in RUNS
        for seed in seeds_of(run)
        for name in BENCHMARKS
    ]


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
        device=DEVICE,
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
