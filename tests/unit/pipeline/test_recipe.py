from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from groupwise.errors import ConfigError
from groupwise.pipeline import Display, load_pipeline, plan, run_pipeline, runner
from groupwise.pipeline.cold_start import Example, few_shot
from groupwise.pipeline.recipe import mixture, with_tasks
from groupwise.tasks import TaskOptions, make_task
from groupwise.tasks.base import Template
from groupwise.types import Problem

TEMPLATE = {"prompt": "{question}\n"}
SUMS = {"kind": "arithmetic", "template": TEMPLATE}
TALK = {"kind": "general", "template": TEMPLATE}


def test_tasks_are_put_in_by_name_wherever_they_are_asked_for() -> None:
    tasks = {"sums": SUMS, "talk": TALK}
    found = with_tasks({"task": "sums", "general": {"task": "talk", "keep": 1}, "n": 3}, tasks, "stages.x")
    assert found == {"task": SUMS, "general": {"task": TALK, "keep": 1}, "n": 3}
    assert with_tasks({"task": ["talk"]}, tasks, "x") == {"task": TALK}
    own = {"task": {"kind": "countdown"}}
    assert with_tasks(own, tasks, "x") == own


def test_a_list_of_tasks_is_a_mixture_and_mixtures_are_flattened() -> None:
    inner = {"kind": "mixture", "template": TEMPLATE, "parts": {"a": {"weight": 3, "task": SUMS}}}
    found = with_tasks({"task": ["both", "talk"]}, {"both": inner, "talk": TALK}, "stages.x")
    parts = {"a": {"weight": 3, "task": SUMS}, "talk": {"task": TALK}}
    assert found["task"] == {"kind": "mixture", "template": TEMPLATE, "parts": parts}
    inner["verifier"] = {"kind": "routed"}
    with pytest.raises(ConfigError, match=r"stages\.x\.task: tasks\.both is a mixture with a verifier of its own"):
        with_tasks({"task": ["both", "talk"]}, {"both": inner, "talk": TALK}, "stages.x")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("sum", r"stages.x.task: there is no task 'sum' in \[tasks\]; known are sums, talk"),
        (["sums", "tall"], "there is no task 'tall'"),
        ([], r"stages.x.task = \[\]; allowed are"),
        (3, "stages.x.task = 3; allowed are"),
    ],
)
def test_unknown_tasks_are_named(task: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        with_tasks({"task": task}, {"sums": SUMS, "talk": TALK}, "stages.x")


def test_parts_of_the_same_name_cannot_be_mixed() -> None:
    inner = {"kind": "mixture", "template": TEMPLATE, "parts": {"sums": {"weight": 3, "task": SUMS}}}
    with pytest.raises(ConfigError, match=r"stages\.x\.task: two of these tasks bring a part named 'sums'"):
        with_tasks({"task": ["both", "sums"]}, {"both": inner, "sums": SUMS}, "stages.x")


def test_tasks_of_different_templates_cannot_be_mixed() -> None:
    other = {**TALK, "template": {"prompt": "User: {question}"}}
    with pytest.raises(ConfigError, match=r"stages\.x: tasks\.sums and tasks\.talk have different templates"):
        mixture({"sums": SUMS, "talk": other}, "stages.x")
    own = {**SUMS, "template": other["template"]}
    assert mixture({"sums": own, "talk": other}, "x")["template"] == other["template"]


def test_a_mixture_of_tasks_with_a_template_of_their_own_is_a_task() -> None:
    template = {"prompt": "User: {question}"}
    config = mixture({"sums": {**SUMS, "template": template}, "talk": {**TALK, "template": template}}, "x")
    task = make_task(TypeAdapter(TaskOptions).validate_python(config))
    assert task.template.prompt == "User: {question}"
    assert len({problem.id.split("/")[0] for problem in task.problems("dev")}) == 2


RECIPE = """
[pipeline]
directory = "runs/x"
[tasks.sums]
kind = "arithmetic"
[tasks.talk]
kind = "general"
"""
GRPO = 'algorithm = "grpo"\ntask = "sums"\nrun = { num_steps = 1 }\n'
COLD = '[stages.cold]\nkind = "cold_start"\ntask = "sums"\nsources.base = { path = "{base}" }\n'


PAIRS = '{ source = "generated", rule = "worlds/general.py:Helpful", task = "talk" }'
REWARD = f'[stages.rm]\nalgorithm = "reward_model"\nrun = {{ num_steps = 1 }}\ndata = {PAIRS}\n'
SFT = 'algorithm = "sft"\nrun = { num_steps = 1 }\n'
REJECTION = '[stages.r]\nkind = "rejection_sampling"\npath = "{base}"\n'
CHAT = "template = { chat = true }"
SYSTEM = '{ kind = "arithmetic", template = { system = "Be brief." } }'


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (f"[stages.base]\n{GRPO}", "stages.base: this name means the base model"),
        (
            f'[stages.a]\n{GRPO}model = {{ path = "{{b}}" }}\n[stages.b]\n{GRPO}',
            r"stages.a.model.path = '\{b\}': the stage b does not come before it; before it come base$",
        ),
        (f'[stages.a]\n{GRPO}model = {{ path = "{{a}}" }}', r"path = '\{a\}': the stage a does not come before it"),
        (
            f'[stages.a]\nkind = "sample"\n{GRPO}',
            "stages.a.kind: there is no stage 'sample'; known are budget, cold_start, play, recall, .*train",
        ),
        (f"[stages.a]\nkind = 3\n{GRPO}", "stages.a.kind = 3; allowed are"),
        ('[stages.a]\nalgorithm = "dqn"', "stages.a.algorithm: there is no trainer 'dqn'; .*known are distill, dpo"),
        ('[stages.a]\nalgorithm = ["sft"]', r"stages.a.algorithm = \['sft'\]; allowed are"),
        ("[stages.a]\n", "stages.a.algorithm = None; allowed are"),
        (f"[stages.a]\n{GRPO}".replace("num_", 'directory = "x", num_'), "stages.a.run.directory is set by the pip"),
        (f"[stages.a]\n{GRPO}".replace('"sums"', SYSTEM), "stages.a.task.template.system is of a chat template"),
        (f"[stages.a]\n{GRPO}[stages.a.grpo]\ngroup_sise = 3", r"(?s)stages.a.*group_sise.*did you mean 'group_size'"),
        (f"[stages.a]\n{GRPO}[stages.a.optimizer]\nlr = -1", r"(?s)stages.a cannot be used.*optimizer.lr = -1"),
        ('[stages.a]\nalgorithm = "grpo"\ntask = "talk"\nrun = 5', r"(?s)stages.a cannot be used.*run = 5"),
        (f"{COLD}num_row = 3", r"(?s)stages.cold.*num_row.*did you mean 'num_rows'"),
        (f"{COLD}[stages.A]\n{GRPO}", r"(?s)stages\.A"),
        (f'{COLD}[[stages.cold.examples]]\nquestion = ""\ncompletion = "x"', r"(?s)examples.0.question"),
        (f'{REJECTION}task = "sums"\ngeneral = {{ task = "no" }}', r"stages.r.general.task: there is no task 'no'"),
        (COLD.replace('"sums"', f'{{ kind = "arithmetic", {CHAT} }}'), r"(?s)stages.cold .*chat = true: .* is allowed"),
        (f'{REJECTION}task = "sums"\ngeneral.task = {{ kind = "general", {CHAT} }}', "chat = true: .* is allowed"),
        (
            f'{COLD}[stages.a]\n{SFT}data = {{ source = "jsonl", path = "{{Cold}}" }}',
            r"stages.a.data.path = '\{Cold\}': there is no stage 'Cold'; before it come base, cold",
        ),
        (
            f'{COLD}[stages.a]\n{GRPO}model = {{ path = "{{cold}}" }}',
            "stages.a.model.path = .*: model is read here, but the stage cold makes data",
        ),
        (
            f'{REWARD}[stages.a]\n{GRPO}model = {{ path = "{{rm}}" }}',
            "model is read here, but the stage rm makes reward model",
        ),
        (
            f'[stages.z]\n{GRPO}[stages.a]\n{GRPO}reward_models.x = {{ path = "{{z}}" }}',
            "stages.a.reward_models.x.path = .*: reward model is read here, but the stage z makes model",
        ),
        (COLD.replace('}"', '}", few_shot = true'), r"(?s)stages.cold.*sources.base.few_shot = true .* there are none"),
        ("", "stages"),
        (
            f"[stages.a]\n{GRPO}[measure.tools.sum.calculator]\nkind = 'calculator'",
            r"measure\.tools\.sum: there is no such task in \[tasks\]; allowed are sums",
        ),
        (f"[stages.a]\n{GRPO}[measure]\nnum_problem = 3", "num_problem: unknown key; did you mean 'num_problems'"),
    ],
)
def test_mistakes_are_said_before_anything_runs(tmp_path: Path, stages: str, said: str) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE + stages)
    with pytest.raises(ConfigError, match=said):
        load_pipeline(tmp_path / "recipe.toml")


def test_a_prompt_may_be_nothing_but_the_question(tmp_path: Path) -> None:
    task = '{ kind = "arithmetic", template = { prompt = "{question}" } }'
    (tmp_path / "recipe.toml").write_text(RECIPE + "[stages.a]\n" + GRPO.replace('"sums"', task))
    _, (stage,) = load_pipeline(tmp_path / "recipe.toml")
    assert stage.inputs == ()
    assert stage.settings["task"]["template"]["prompt"] == "{question}"


def test_what_a_stage_leaves_out_is_the_pipelines(tmp_path: Path) -> None:
    more = "[model]\nnum_threads = 1\n[sampling]\nmax_tokens = 33\ntemperature = 0.9\n"
    train = f"[stages.a]\n{GRPO}sampling = {{ temperature = 0.7 }}\n"
    (tmp_path / "recipe.toml").write_text(RECIPE + more + train + COLD)
    _, (train_stage, cold) = load_pipeline(tmp_path / "recipe.toml", ["pipeline.seed=5"])
    settings = train_stage.settings
    assert settings["sampling"]["max_tokens"] == cold.settings["sampling"]["max_tokens"] == 33
    assert (settings["sampling"]["temperature"], cold.settings["sampling"]["temperature"]) == (0.7, 0.9)
    assert settings["model"]["num_threads"] == cold.settings["model"]["num_threads"] == 1
    assert "path" not in cold.settings["model"]  # its sources say which models they are
    assert settings["run"]["seed"] == cold.settings["seed"] == 5
    assert (train_stage.makes, cold.makes) == ("model", "data")


def test_the_engine_of_a_pipeline_is_every_stages_but_for_one_that_has_its_own(tmp_path: Path) -> None:
    own = f'[stages.b]\n{GRPO}engine = {{ kind = "in_process" }}\n'
    stages = f'{REJECTION}task = "sums"\n[stages.a]\n{GRPO}{own}'
    engine = 'engine = { kind = "vllm", addresses = ["http://127.0.0.1:9"] }'
    for line, kind in (("", "in_process"), (engine, "vllm")):
        (tmp_path / "recipe.toml").write_text(f"{line}\n{RECIPE}{stages}")
        recipe, found = load_pipeline(tmp_path / "recipe.toml")
        kinds = {stage.name: stage.settings["engine"]["kind"] for stage in found}
        assert (recipe.engine.kind, kinds) == (kind, {"r": kind, "a": kind, "b": "in_process"})


def test_what_a_table_leaves_out_is_the_pipelines_however_deep_it_lies(tmp_path: Path) -> None:
    more = (
        '[model]\npath = "base"\ncompute_dtype = "bfloat16"\nnum_threads = 1\n[sampling]\nmax_tokens = 33\n'
        "[measure]\nsampling = { temperature = 0.6 }\n"
    )
    cold = (
        '[stages.cold]\nkind = "cold_start"\ntask = "sums"\nmodel = { num_threads = 2 }\nsampling = { top_p = 0.5 }\n'
        'sources.base = { path = "{base}", sampling = { temperature = 0.8 } }\n'
    )
    distill = (
        '[stages.distilled]\nalgorithm = "distill"\nrun = { num_steps = 1 }\nteacher = { path = "other" }\n'
        'data = { source = "student", task = "sums" }\n'
    )
    (tmp_path / "recipe.toml").write_text(RECIPE + more + cold + distill)
    recipe, (data, train) = load_pipeline(tmp_path / "recipe.toml")
    assert (recipe.measure.sampling.max_tokens, recipe.measure.sampling.temperature) == (33, 0.6)
    assert (data.settings["model"]["compute_dtype"], data.settings["model"]["num_threads"]) == ("bfloat16", 2)
    assert (data.settings["sampling"]["max_tokens"], data.settings["sampling"]["top_p"]) == (33, 0.5)
    source = data.settings["sources"]["base"]["sampling"]
    assert (source["max_tokens"], source["temperature"]) == (33, 0.8)
    assert (train.settings["teacher"]["compute_dtype"], train.settings["teacher"]["num_threads"]) == ("bfloat16", 1)
    assert train.settings["data"]["sampling"]["max_tokens"] == 33


MY_STAGE = """
from pydantic import Field
from groupwise.config.schema import DataRef
from groupwise.config import Section
from groupwise.pipeline.base import Made, Stage, Workplace
from groupwise.pipeline.directory import read_rows, write_rows
from pathlib import Path

class HalfConfig(Section):
    seed: int
    corpus: DataRef
    share: float = Field(0.5, gt=0, le=1)

class Half(Stage[HalfConfig]):
    Config = HalfConfig
    makes = "data"

    def run(self, config: HalfConfig, work: Workplace) -> Made:
        rows = read_rows(Path(config.corpus))
        kept = rows[: round(config.share * len(rows))]
        return Made(work.directory.data, write_rows(work.directory.data, kept), statistics={"rows": len(kept)})
"""


@pytest.fixture
def own_stage(tmp_path: Path) -> Path:
    (tmp_path / "my_stage.py").write_text(MY_STAGE)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "p", "completion": "c"}\n' * 8)
    stages = (
        f'[pipeline]\ndirectory = "{tmp_path}/made"\nseed = 3\n[tasks.sums]\nkind = "arithmetic"\n'
        '[stages.half]\nkind = "my_stage.py:Half"\ncorpus = "rows.jsonl"\n'
        '[stages.quarter]\nkind = "my_stage.py:Half"\ncorpus = "{half}"\n'
        f'[stages.tune]\n{SFT}data = {{ source = "jsonl", path = "{{quarter}}" }}\n'
    )
    (tmp_path / "recipe.toml").write_text(stages)
    return tmp_path / "recipe.toml"


def test_a_stage_of_ones_own_is_one_file(own_stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_measure_base", lambda *found: None)
    recipe, (half, quarter, tune) = load_pipeline(own_stage)
    source = str(own_stage.with_name("my_stage.py"))
    assert (half.makes, half.inputs, half.config.seed) == ("data", (), 3)
    assert half.files == (str(own_stage.with_name("rows.jsonl")), source)
    assert (quarter.inputs, tune.inputs) == (("half",), ("quarter",))
    assert run_pipeline(recipe, [half, quarter], Display(lambda recipe: pytest.fail("nothing trains")))
    made = own_stage.with_name("made") / "stages"
    assert len((made / "half" / "data.jsonl").read_text().splitlines()) == 4
    assert len((made / "quarter" / "data.jsonl").read_text().splitlines()) == 2
    before = [one.fingerprint for one in plan(recipe, [half, quarter])]
    Path(source).write_text(MY_STAGE + "\n# changed\n")
    assert [one.action for one in plan(recipe, [half, quarter])] == ["run", "run"]
    assert [one.fingerprint for one in plan(recipe, [half, quarter])] != before


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("stages.half.share=2", r"(?s)stages.half cannot be used.*share = 2"),
        ("stages.half.shares=1", "shares: unknown key; did you mean 'share'"),
        ("stages.half.corpus={tune}", r"stages.half.corpus = '\{tune\}': the stage tune does not come before it"),
        ("stages.half.kind=my_stage.py:Haf", r"stages.half.kind: .*my_stage.py has no 'Haf'; did you mean 'Half'"),
        ("stages.half.kind=my_stage.py:HalfConfig", "is no stage: allowed is a class that is a Stage"),
        ("stages.tune.model.path={half}", "stages.tune.model.path = .*: model is read here, but the stage half makes"),
    ],
)
@pytest.mark.filterwarnings("ignore:.* begins the section anew")
def test_mistakes_about_ones_own_stage_are_said(own_stage: Path, override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_pipeline(own_stage, [override])


def test_examples_that_a_template_does_not_write_are_refused() -> None:
    class Own(Template):
        kind: str = "own.py:Own"

        def render(self, problem: Problem) -> str:
            return f"Q: {problem.question}"

    examples = [Example(question="1+1?", completion="2")]
    assert few_shot(Template(prompt="{question}="), examples).render(Problem("", "3", "")) == "1+1?=2\n\n3="
    with pytest.raises(ConfigError, match=r"the template 'own\.py:Own' does not write them as they are"):
        few_shot(Own(), examples)
