from pathlib import Path

import pytest

from popu.config import (
    MAX_STAGE_CHAIN,
    STAGES_PER_STEP,
    Base,
    Config,
    ConfigError,
    Engine,
    Run,
    Training,
    Vllm,
    arm_training,
    load_config,
    read_config,
    run_id,
)


def run(training: dict | None = None, **others) -> Run:
    values = {"arm": "4t4s", "seed": 1, "base": Base(), "base_sha256": "0" * 64, "engine": Engine(), **others}
    return Run(training=Training.model_validate(training or {}), **values)


# --- validation


def test_an_empty_config_is_the_defaults():
    assert load_config({}) == Config()


@pytest.mark.parametrize(
    ("data", "key", "nearest"),
    [
        ({"experimnt": "x"}, "experimnt", "experiment"),
        ({"training": {"update": {"learning_rat": 1e-3}}}, "training.update.learning_rat", "learning_rate"),
        ({"training": {"evolution": {"evry": 5}}}, "training.evolution.evry", "every"),
        ({"engine": {"thread": 1}}, "engine.thread", "threads"),
        ({"arms": {"a": {"lora": {"rnk": 4}}}}, "arms.a.lora.rnk", "rank"),
        ({"arms": {"a": {"step": 4}}}, "arms.a.step", "steps"),
    ],
)
def test_an_unknown_key_names_the_nearest(data, key, nearest):
    with pytest.raises(ConfigError, match=f"^{key}: unknown key; the nearest valid key is {nearest}$"):
        load_config(data)


@pytest.mark.parametrize(
    ("data", "key", "found"),
    [
        ({"training": {"steps": 0}}, "training.steps", "0"),
        (
            {"training": {"proposals": {"proposals_per_prompt": 1}}},
            "training.proposals.proposals_per_prompt",
            "1",
        ),
        ({"training": {"update": {"learning_rate": -1.0}}}, "training.update.learning_rate", "-1.0"),
        ({"training": {"evolution": {"fraction": 1.0}}}, "training.evolution.fraction", "1.0"),
        ({"training": {"update": {"clip_high": float("inf")}}}, "training.update.clip_high", "inf"),
        ({"training": {"lora": {"alpha": float("nan")}}}, "training.lora.alpha", "nan"),
        ({"engine": {"threads": "many"}}, "engine.threads", "'many'"),
        ({"experiment": "../up"}, "experiment", "'../up'"),
        ({"arms": {"a": {"lora": {"rank": 0}}}}, "arms.a.lora.rank", "0"),
    ],
)
def test_a_value_out_of_bounds_names_key_and_value(data, key, found):
    with pytest.raises(ConfigError) as error:
        load_config(data)
    assert str(error.value).startswith(f"{key}: ") and str(error.value).endswith(f"found {found}")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"training": {"matching": {"method": "pfs"}}}, "training.matching.method: .*'pfs'; did you mean 'pfsp'"),
        (
            {"training": {"rewards": {"source": "x"}}},
            "training.rewards.source: .*of verifier, random, format",
        ),
        ({"training": {"problem_types": ["code_x"]}}, "training.problem_types: .*found 'code_x'; did you mean 'code_"),
        ({"training": {"problem_types": ["code_o", "code_o"]}}, "training.problem_types: no type twice"),
        ({"arms": {"a": {"evolution": {"operators": ["tie"]}}}}, "arms.a.evolution.operators: .*did you mean 'ties'"),
    ],
)
def test_an_unknown_name_names_the_nearest(data, message):
    with pytest.raises(ConfigError, match=message):
        load_config(data)


def test_every_fault_has_a_line():
    with pytest.raises(ConfigError) as error:
        load_config({"experimnt": "x", "training": {"steps": 0}})
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == ["training.steps", "experimnt"]


def test_more_teachers_than_students_are_refused():
    load_config({"training": {"population": {"n_teachers": 2, "n_students": 3}}})
    with pytest.raises(ConfigError, match="n_teachers <= n_students expected, found 4 > 2"):
        load_config({"training": {"population": {"n_students": 2}}})


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1, 2]])
def test_seeds_are_distinct_and_not_negative(seeds):
    with pytest.raises(ConfigError, match="no seed twice"):
        load_config({"seeds": seeds})


@pytest.mark.parametrize("name", ["", "a-b", "a/b", "a b"])
def test_arm_names_fit_into_a_path(name):
    with pytest.raises(ConfigError, match="arm names"):
        load_config({"arms": {name: {}}})


def test_a_config_without_arms_is_refused():
    with pytest.raises(ConfigError, match="at least one arm"):
        load_config({"arms": {}})


# --- the chain of jobs


def test_a_stage_chain_that_is_too_long_names_block():
    steps = MAX_STAGE_CHAIN // STAGES_PER_STEP
    load_config({"training": {"steps": steps}})
    too_long = {"training": {"steps": steps + 1}}
    with pytest.raises(ConfigError, match=f"{steps + 1} steps make a chain.*granularity: block"):
        load_config(too_long)
    load_config({**too_long, "granularity": "block"})


def test_the_chain_of_an_arm_counts():
    with pytest.raises(ConfigError, match="of arm long: 5000 steps"):
        load_config({"arms": {"short": {}, "long": {"steps": 5000}}})


# --- arms


def test_arms_may_have_seeds_of_their_own():
    config = load_config({"seeds": [1], "arms": {"a": {}, "b": {}}, "arm_seeds": {"b": [1, 2]}})
    assert config.arm_seeds == {"b": (1, 2)}


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({"arms": {"a": {}}, "arm_seeds": {"c": [1]}}, "names of arms"),
        ({"arms": {"a": {}}, "arm_seeds": {"a": [1, 1]}}, "no seed twice"),
        ({"training": {"rewards": {"target_band": [0.7, 0.2]}}}, "target_band"),
        ({"training": {"proposals": {"source": "grammar"}}}, "update.roles"),
    ],
)
def test_settings_that_contradict_each_other(data, found):
    with pytest.raises(ConfigError, match=found):
        load_config(data)


def test_an_arm_lies_over_the_defaults_key_by_key():
    config = load_config(
        {
            "training": {"steps": 7, "lora": {"rank": 4, "targets": ["q_proj", "v_proj"]}},
            "arms": {
                "plain": {},
                "wide": {"lora": {"rank": 16}},
                "narrow": {"lora": {"targets": ["q_proj"]}},
            },
        }
    )
    assert arm_training(config, "plain") == config.training
    wide, narrow = arm_training(config, "wide"), arm_training(config, "narrow")
    assert (wide.steps, wide.lora.rank, wide.lora.targets) == (7, 16, ("q_proj", "v_proj"))
    assert (narrow.lora.rank, narrow.lora.targets) == (4, ("q_proj",))
    assert config.training.lora.rank == 4


# --- the identity of a run


def test_run_id_is_the_arm_and_eight_digits():
    name, _, digits = run_id(run()).rpartition("-")
    assert name == "4t4s" and len(digits) == 8 and int(digits, 16) >= 0


@pytest.mark.parametrize(
    "same",
    [
        run({"steps": 999}),
        run({"checkpoint_every": 3}),
        run(seed=2),
        run(base=Base(path="elsewhere/model")),
        run(base=Base(sha256="0" * 64)),
        run({"lora": {"rank": 8}}),
        run(engine=Engine(vllm=Vllm(max_loras=2))),
    ],
    ids=["steps", "checkpoint_every", "seed", "base path", "expected sha256", "a default spelt out", "vLLM unused"],
)
def test_run_id_is_stable_under_what_changes_no_byte_of_a_step(same):
    assert run_id(same) == run_id(run())


@pytest.mark.parametrize(
    "other",
    [
        run({"update": {"learning_rate": 1e-3}}),
        run({"update": {"gradient_checkpointing": True}}),
        run({"update": {"device": "cuda"}}),
        run({"evolution": {"every": 5}}),
        run({"evolution": {"operators": ["full_gaussian", "layer_wise"]}}),
        run({"population": {"kind": "single"}}),
        run({"sampling": {"max_new_tokens": 64}}),
        run({"rewards": {"flip_share": 0.05}}),
        run({"problem_types": ["code_o"]}),
        run(plugins={"popu-short": "1.0+00000000"}),
        run({"verifier": {"cpu_s": 1.0}}),
        run(engine=Engine(threads=1)),
        run(engine=Engine(dtype="bfloat16")),
        run(base_sha256="1" * 64),
        run(base=Base(prompt_style="instruct")),
        run(base=Base(chat_template=True)),
        run(engine=Engine(kind="vllm")),
        run({"update": {"importance_cap": 2.0}}),
    ],
)
def test_run_id_changes_with_what_changes_bytes(other):
    assert run_id(other) != run_id(run())


@pytest.mark.parametrize(
    ("vllm", "same"),
    [
        (Vllm(python="/opt/vllm/bin/python"), True),
        (Vllm(memory_fraction=0.5, cache_gb=2, sleep=True), True),
        (Vllm(tensor_parallel=2), False),
        (Vllm(data_parallel=2), False),
        (Vllm(eager=True), False),
    ],
)
def test_where_vllm_lies_and_what_memory_it_takes_is_no_part_of_a_runs_name(vllm, same):
    assert (run_id(run(engine=Engine(kind="vllm", vllm=vllm))) == run_id(run(engine=Engine(kind="vllm")))) == same


# --- files


def test_read_config(tmp_path: Path):
    path = tmp_path / "config.yaml"
    path.write_text("experiment: mine\ntraining: {steps: 3}\n")
    config = read_config(path)
    assert (config.experiment, config.training.steps) == ("mine", 3)


@pytest.mark.parametrize("content", [b"- a list", b"", b"a: [", b"\xff\xfe"])
def test_a_file_that_is_no_mapping_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="config.yaml: expected a"):
        read_config(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="absent.yaml"):
        read_config(tmp_path / "absent.yaml")


def test_committed_configs_are_valid():
    paths = sorted((Path(__file__).parents[1] / "config").glob("*.yaml"))
    for path in paths:
        assert read_config(path).arms
