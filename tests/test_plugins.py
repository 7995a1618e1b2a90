"""Names of parts: ours, installed ones, unknown ones, broken ones."""

import sys

import pytest

from popu import doctor, plugins, worker
from popu.config import Base, Engine, Run, Training, load_config, run_id
from popu.errors import ConfigError
from popu.rl.rewards import Reward
from popu.stages.run import check_plugins

from .distributions import install

REWARD = """
from popu.rl.rewards import Reward

HALF = Reward(lambda config, attempt, verdict, rng: 0.5, lambda config, taught, rng: 0.5)
NUMBER = 3
"""


def forget():
    plugins._all_entry_points.cache_clear()
    plugins._installed.cache_clear()
    plugins.load.cache_clear()


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Installs a distribution for the length of a test."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, rewards, source=REWARD, **others):
        module = name.replace("-", "_")
        install(tmp_path, name, {"popu.rewards": rewards}, {f"{module}.py": source}, **others)
        monkeypatch.delitem(sys.modules, module, raising=False)  # of another test
        forget()
        return tmp_path / f"{module}.py"

    yield make
    forget()


def training(source):
    return Training.model_validate({"rewards": {"source": source}})


def settings(source):
    made = training(source)
    used = made.used_plugins()
    return Run(arm="a", seed=1, training=made, base=Base(), base_sha256="0" * 64, engine=Engine(), plugins=used)


def test_every_name_of_ours_is_what_its_kind_says():
    from popu.domains.domain import Domain
    from popu.evolution.operator import Operator

    expected = {"rewards": Reward, "operators": Operator, "problem_types": Domain, "matchers": object}
    for kind, of in expected.items():
        assert plugins.names(kind) and all(isinstance(plugins.load(kind, n, of), of) for n in plugins.names(kind))
        assert all(plugins.find(kind, name).dist is None for name in plugins.names(kind))
    assert plugins.distributions(("operators", name) for name in plugins.names("operators")) == {}


def test_an_installed_part_is_found_by_its_name(offer):
    offer("popu-t-half", {"half": "popu_t_half:HALF"})
    assert plugins.load("rewards", "half", Reward).student(None, None, "wrong", None) == 0.5
    assert load_config({"training": {"rewards": {"source": "half"}}}).training.rewards.source == "half"


def test_an_unknown_name_lists_ours_and_the_installed_ones(offer):
    offer("popu-t-half", {"half": "popu_t_half:HALF"}, version="2.1")
    wanted = (
        r"training\.rewards\.source: expected one of verifier, random, format, half \(popu-t-half 2\.1\), found 'hal'"
    )
    with pytest.raises(ConfigError, match=wanted + "; did you mean 'half'"):
        load_config({"training": {"rewards": {"source": "hal"}}})


@pytest.mark.parametrize(
    ("value", "source", "fault"),
    [
        (
            "popu_t_bad:HALF",
            "import no_such_module_at_all",
            "cannot be loaded: ModuleNotFoundError: No module named 'no_s",
        ),
        ("popu_t_bad:HALF", "x = 1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("popu_t_bad:WHOLE", REWARD, "cannot be loaded: AttributeError"),
        ("popu_t_absent:HALF", REWARD, "cannot be loaded: ModuleNotFoundError"),
        ("popu_t_bad:NUMBER", REWARD, "expected Reward, found int"),
    ],
)
def test_a_part_that_cannot_be_used_names_its_distribution_and_the_fault(offer, value, source, fault):
    offer("popu-t-bad", {"bad": value}, source)
    with pytest.raises(ConfigError, match=rf"popu\.rewards 'bad' of popu-t-bad 1\.0 \({value}\): {fault}"):
        plugins.load("rewards", "bad", Reward)


def test_a_name_that_is_offered_twice_is_refused(offer):
    offer("popu-t-one", {"half": "popu_t_one:HALF", "verifier": "popu_t_one:HALF"})
    offer("popu-t-two", {"half": "popu_t_two:HALF"})
    with pytest.raises(
        ConfigError, match=r"'half' .* offered once, found it in popu-t-(one|two) 1\.0 and popu-t-(one|two)"
    ):
        plugins.find("rewards", "half")
    with pytest.raises(ConfigError, match=r"'verifier' .* found it in popu itself and popu-t-one 1\.0"):
        plugins.find("rewards", "verifier")


def test_the_doctor_lists_installed_parts_and_those_that_cannot_be_used(offer):
    offer("popu-t-half", {"half": "popu_t_half:HALF", "format": "popu_t_half:HALF"})
    offer("popu-t-bad", {"bad": "popu_t_bad:ABSENT"})
    rows = {row.name: row for row in doctor._plugins()}
    assert sorted(rows) == ["rewards: bad", "rewards: format", "rewards: half"]
    assert rows["rewards: half"].ok and rows["rewards: half"].found.startswith("popu-t-half 1.0+")
    assert not rows["rewards: bad"].ok and "cannot be loaded" in rows["rewards: bad"].found
    assert not rows["rewards: format"].ok and "popu itself and popu-t-half" in rows["rewards: format"].found


def test_another_version_or_another_source_is_another_run_and_another_worker(offer):
    ours, version = settings("verifier"), worker.code_version()
    assert ours.plugins == {} and run_id(ours) == run_id(settings("verifier"))
    path = offer("popu-t-half", {"half": "popu_t_half:HALF"})
    assert settings("verifier").plugins == {}, "installed, but not used"
    with_it, found = settings("half"), worker.code_version()
    assert [*with_it.plugins] == ["popu-t-half"] and with_it.plugins["popu-t-half"].startswith("1.0+")
    assert found != version
    check_plugins(with_it)
    path.write_text(REWARD + "# changed\n")
    changed = settings("half")
    assert run_id(changed) != run_id(with_it) and worker.code_version() not in (version, found)
    with pytest.raises(
        ConfigError, match=r"plug-ins of the run: expected popu-t-half 1\.0\+\w{8}, found popu-t-half 1\.0\+"
    ):
        check_plugins(with_it)


def test_a_package_counts_whole_and_a_namespace_does_not(offer, tmp_path):
    package = tmp_path / "popu_t_space" / "inner"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(REWARD)
    (package / "other.py").write_text("")
    (tmp_path / "popu_t_space" / "stranger.py").write_text("")
    offer("popu-t-half", {"half": "popu_t_space.inner:HALF"})
    before = plugins.installed()
    (tmp_path / "popu_t_space" / "stranger.py").write_text("x = 1")
    assert plugins.installed() == before
    (package / "other.py").write_text("x = 1")
    assert plugins.installed() != before
