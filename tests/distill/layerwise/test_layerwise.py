"""Layer by layer: equal to the path that holds the whole model, and resumable."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from typer.testing import CliRunner

from distill.checkpoint.sharded import Checkpoint
from distill.cli.main import app
from distill.cost.whole_model import estimate
from distill.errors import DistillError
from distill.layerwise.layer_loader import Layers
from distill.layerwise.setup import load_layerwise_setup
from distill.layerwise.tensor_store import TensorStore
from distill.models.forward import final_hidden_states, visit_indexer_calls
from distill.models.sizes import meta_model, sizes_of
from distill.setup import load_training_setup
from distill.training.events import LayerEvaluated, LayerRead, LogitsCompared, StreamsAdvanced
from distill.training.metrics_log import read_metrics
from distill.training.trainer import Trainer
from evalkit.dsa import select
from evalkit.dsa.indexer_checkpoint import apply_indexer
from tests.checkpoints import save
from tests.distill.bases import in_fp8, sharded
from tests.distill.helpers import batch
from tests.distill.layerwise.runs import layerwise, recipe
from tests.paths import TINY_MODEL

CPU = torch.device("cpu")
BLOCKS = {"kind": "hisa", "block": 4, "blocks": 4}
DENSE_THEN_SPARSE = ["dense"] * 4 + ["sparse"] * 4


def in_memory(config, out):
    """The trainer that holds the whole model, and its students after the last step."""
    setup = load_training_setup(config, out, out / "data")
    trainer = Trainer(setup, out, Accelerator(cpu=True))
    trainer.run()
    newest = sorted((out / "state").iterdir())[-1]
    return trainer, load_file(newest / "students.safetensors")


class OneLayerTrainer(Trainer):
    """Trains what is not frozen, which may be one layer of several."""

    def _reduce_gradients(self, parameters, rows):
        if parameters:
            super()._reduce_gradients(parameters, rows)


def one_after_another(config, out):
    """Students of the trainer that holds the whole model, run for one full layer at a time."""
    setup = load_training_setup(config, out, out / "data")
    for layer in setup.students.layers:
        for ordinal, module in setup.students.modules.items():
            module.requires_grad_(ordinal == layer)
        (out / str(layer)).mkdir()
        OneLayerTrainer(setup, out / str(layer), Accelerator(cpu=True)).run()
    return setup.students.state()


def assert_same(run, expected, which="state"):
    for layer, found in run.done.items():
        for name, tensor in getattr(found, which).items():
            wanted = expected[f"{layer}.{name}"]
            assert torch.allclose(tensor, wanted, rtol=1e-5, atol=1e-6), (layer, name)


# -- one layer as a model of its own -----------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "extra"),
    [
        ("deepseek_v32", {"mlp_layer_types": DENSE_THEN_SPARSE}),
        ("glm_moe_dsa", {"indexer_types": ["full", "shared"] * 4}),
    ],
)
def test_layers_in_a_row_are_the_model(tmp_path, family, extra):
    directory, _ = sharded(tmp_path, family, **extra)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    layers = Layers(Checkpoint(str(directory)), torch.float32, CPU)
    text, native, chosen = batch(2, 40), layers.layout.native, {}
    hidden = layers.embed()(text.ids)
    for number in range(len(layers)):
        layer = layers.open(number)

        def answer(call, number=number, layer=layer):
            if native.computes[number]:
                features = layers.features(layer.indexer, call)
                chosen[number] = select(features, layer.indexer.index_topk)
            return chosen[native.source[number]]

        hidden = layer.run(hidden, answer)
    whole = final_hidden_states(model, native, text)
    assert torch.equal(model.get_decoder().norm(hidden), whole)


def test_an_mtp_layer_does_not_lend_its_embedding(tmp_path):
    directory, _ = sharded(tmp_path, mlp_layer_types=DENSE_THEN_SPARSE)
    index = directory / "model.safetensors.index.json"
    own, facts = {}, json.loads(index.read_text())
    for name in ("embed_tokens.weight", "norm.weight", "lm_head.weight"):
        own[f"model.layers.8.{name}"] = torch.zeros(2, 2)
    save_file(own, directory / "a.safetensors", {"format": "pt"})
    facts["weight_map"] = dict.fromkeys(own, "a.safetensors") | facts["weight_map"]
    index.write_text(json.dumps(facts))
    layers = Layers(Checkpoint(str(directory)), torch.float32, CPU)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    norm, head = layers.norm_and_head(meta_model(layers.config))
    hidden = layers.embed()(torch.tensor([[3]]))
    assert torch.equal(hidden, model.get_input_embeddings()(torch.tensor([[3]])))
    expected = model.get_output_embeddings()(model.get_decoder().norm(hidden))
    assert torch.allclose(head(norm(hidden)), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layers_in_half_precision_keep_in_fp32_what_the_model_keeps(tmp_path, dtype):
    directory, _ = sharded(tmp_path, mlp_layer_types=DENSE_THEN_SPARSE)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    layers = Layers(Checkpoint(str(directory)), dtype, CPU)
    whole = model.get_decoder().layers[5].state_dict()
    one = layers.open(5)._model.get_decoder().layers[0].state_dict()
    assert one["mlp.gate.weight"].dtype == torch.float32
    assert one.keys() == whole.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, whole[name]), name
    for name, tensor in layers.indexer_state(5).items():
        assert torch.equal(tensor.to(dtype), whole[f"self_attn.indexer.{name}"].to(dtype)), name


def test_fp8_layers_are_dequantised_on_the_way(tmp_path):
    directory, _ = sharded(tmp_path, mlp_layer_types=DENSE_THEN_SPARSE)
    in_fp8(directory)
    checkpoint = Checkpoint(str(directory))
    layer = Layers(checkpoint, torch.float32, CPU).open(3)
    name = "model.layers.3.self_attn.indexer.wk.weight"
    assert checkpoint.entries[name].dtype == "F8_E4M3"
    assert torch.equal(layer.indexer.wk.weight, checkpoint.plain(name, torch.float32))
    assert layer.indexer.wk.weight.dtype == torch.float32


# -- equal to the whole model in memory --------------------------------------------------------


OFF = {"states": "off_policy"}
BOTH = [{"kind": "kl", "weight": 0.5}, {"kind": "listmle", "weight": 0.5}]


@pytest.mark.parametrize(
    ("sections", "trained"),
    [
        ({"arm": {"retention": "1/2"}, "train": OFF | {"evaluate_every": 3}}, [2, 4, 6]),
        (
            {
                "arm": {"retention": "1/4", "lag": 1},
                "train": OFF | {"evaluate_every": 3},
                "student": {"start": "random", "first_layer": "train"},
                "loss": BOTH,
            },
            [0, 4],
        ),
        ({"student": {"start": "closed_form"}}, [4]),
        (
            {
                "arm": {"retention": "1/4", "lag": 1},
                "loss": BOTH,
                "student": {"start": "closed_form"},
                "train": {"evaluate_every": 1},
            },
            [4],
        ),
        ({"student": {"start": "closed_form"}, "choice": {"tail": 0.2}, "train": OFF}, [4]),
        (
            {
                "arm": {"retention": "1/2"},
                "student": {"start": "closed_form"},
                "train": {"steps": 0},
            },
            [2, 4, 6],
        ),
        (
            {
                "arm": {"retention": "1/4", "selection": BLOCKS},
                "student": {"start": "closed_form"},
                "train": {"evaluate_every": 1},
            },
            [4],
        ),
        (
            {
                "arm": {"retention": "1/4", "lag": 1},
                "student": {"start": "closed_form", "first_layer": "train"},
                "train": {"steps": 0},
            },
            [0, 4],
        ),
    ],
    ids=[
        "off-policy",
        "lag, random, both losses",
        "on-policy, closed form",
        "on-policy, lag",
        "tail",
        "choices alone",
        "a policy",
        "choices with a lag",
    ],
)
def test_the_same_weights_and_choices_as_in_memory(checkpoint, tmp_path, sections, trained):
    config = recipe(checkpoint, **sections)
    run = layerwise(config, tmp_path / "layers")
    whole, last = in_memory(config, tmp_path / "whole")
    assert sorted(run.done) == trained
    assert_same(run, last, "last")
    for choice in whole.state.choices:
        trained_layer = run.done[choice.layer]
        assert trained_layer.chosen == choice.chosen
        assert trained_layer.scores == pytest.approx(choice.scores, rel=1e-4, abs=1e-9)
    assert not list((tmp_path / "layers" / "hidden_states").rglob("*.safetensors"))
    if len(trained) > 1 and config.train.steps:
        return  # checkpoints of all layers together there, of one layer after another here
    assert_same(run, whole.best)
    first, final = run.done[trained[0]], run.done[trained[-1]]
    assert final.best_step == whole.state.best_step
    for name in ("logit_kl", "logit_kl_tail"):
        assert first.before[name] == pytest.approx(whole.state.before[name], rel=1e-4)
        assert final.after[name] == pytest.approx(whole.state.after[name], rel=1e-4)


@pytest.mark.parametrize(
    ("states", "lag"),
    [
        ("on_policy", 1),
        ("off_policy", 0),
        pytest.param("on_policy", 0, marks=pytest.mark.slow),
        pytest.param("off_policy", 1, marks=pytest.mark.slow),
    ],
)
def test_the_same_as_one_layer_after_another_in_memory(checkpoint, tmp_path, states, lag):
    config = recipe(
        checkpoint,
        arm={"retention": "1/2", "lag": lag},
        train={"states": states, "evaluate_every": 1},
    )
    run = layerwise(config, tmp_path / "layers")
    assert sorted(run.done) == [2, 4, 6]
    assert_same(run, one_after_another(config, tmp_path / "whole"))


def test_checkpoints_can_be_chosen_by_recall_without_a_pass(checkpoint, tmp_path):
    config = recipe(checkpoint, choice={"checkpoint": "recall"}, train={"patience": 1})
    seen = []
    run = layerwise(config, tmp_path / "a", lambda event: seen.append(type(event)))
    assert LayerEvaluated in seen
    assert LogitsCompared not in seen
    assert run.done[4].after["recall"] >= run.done[4].before["recall"]
    assert "logit_kl" not in run.done[4].after


@pytest.mark.parametrize("states", ["on_policy", "off_policy"])
@pytest.mark.parametrize(
    ("arm", "trained"),
    [({"retention": "1/4"}, 4), ({"retention": None, "pattern": "FFSSSSSF", "lag": 1}, 1)],
    ids=["serial", "two phases"],
)
def test_checkpoints_chosen_by_recall_are_those_of_distill_train(
    checkpoint, tmp_path, states, arm, trained
):
    config = recipe(
        checkpoint,
        arm=arm,
        queries={"per_sequence": 12, "decode_share": 0.2},
        data={"held_out": 3},
        choice={"checkpoint": "recall"},
        train={"states": states, "steps": 6, "evaluate_every": 1, "lr": 0.01},
    )
    found = layerwise(config, tmp_path / "layers").done[trained]
    whole, _ = in_memory(config, tmp_path / "whole")
    assert found.best_step == whole.state.best_step
    assert found.before["recall"] == pytest.approx(whole.state.before["recall"], abs=1e-4)
    assert found.after["recall"] == pytest.approx(whole.state.after["recall"], abs=1e-4)
    for name, tensor in found.state.items():
        assert torch.allclose(tensor, whole.best[f"{trained}.{name}"], rtol=1e-5, atol=1e-6)


def test_on_policy_states_know_the_trained_layers_below(checkpoint, tmp_path):
    """With two trained layers, the second one's input is that of the arm with the first in it."""
    config = recipe(checkpoint, arm={"retention": "1/2"}, train={"states": "on_policy"})
    kept = {}

    def keep(event):
        if isinstance(event, LayerEvaluated) and event.layer == 4:
            path = tmp_path / "a/hidden_states/input/4/held_out/0.safetensors"
            kept.setdefault("input", load_file(path))

    run = layerwise(config, tmp_path / "a", keep)
    setup = load_training_setup(config, tmp_path, tmp_path / "data")
    setup.students.load(
        setup.students.state() | {f"2.{name}": tensor for name, tensor in run.done[2].state.items()}
    )
    seen = {}
    text = setup.data.splits["held_out"].batches(2)[0]

    def visit(layer, call):
        seen.setdefault(layer, call.hidden)

    with setup.students.acting(setup.model):
        visit_indexer_calls(setup.model, setup.schedule, text, visit, layers=[4])
    assert torch.allclose(kept["input"]["hidden"], seen[4], atol=1e-5)


# -- a run ---------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on(checkpoint, tmp_path):
    config = recipe(checkpoint, arm={"retention": "1/2"}, train={"states": "on_policy"})
    read = {}

    def count(event):
        if isinstance(event, LayerRead):
            read["layers"] = event.count

    expected = layerwise(config, tmp_path / "whole", count)
    planned = read["layers"]

    def stop(event):
        if isinstance(event, StreamsAdvanced) and event.arm == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        layerwise(config, tmp_path / "cut", stop)
    state = json.loads((tmp_path / "cut" / "state.json").read_text())
    assert list(state["done"]) == ["2"]
    again = layerwise(config, tmp_path / "cut", count)
    assert read["layers"] == planned  # the bar ends where it must
    for layer, found in expected.done.items():
        for name, tensor in found.state.items():
            assert torch.equal(again.done[layer].state[name], tensor)
    paths = [tmp_path / n / "indexer" / "indexer.safetensors" for n in ("whole", "cut")]
    first, second = map(load_file, paths)
    assert first.keys() == second.keys()
    assert all(torch.equal(second[name], tensor) for name, tensor in first.items())
    with pytest.raises(DistillError, match="belongs to another run"):
        layerwise(recipe(checkpoint, train={"steps": 4}), tmp_path / "cut")


@pytest.fixture
def cut(checkpoint, tmp_path):
    """(recipe, directory) of a run that was interrupted while its second layer trained."""
    config, out = recipe(checkpoint, arm={"retention": "1/2"}, train={"steps": 2}), tmp_path / "cut"

    def stop(event):
        if isinstance(event, LayerEvaluated) and event.layer == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        layerwise(config, out, stop)
    return config, out


def test_a_run_that_0_1_began_goes_on(cut, tmp_path):
    config, out = cut
    (out / "hidden_states").rename(out / "shelf")
    path = out / "state.json"
    state = json.loads(path.read_text())
    state["judge_at"], state["opened"] = state.pop("evaluator_at"), state.pop("layers_read")
    recipe = state["identity"]["recipe"]
    queries = recipe.pop("queries")
    recipe["loss"] = {"kl_share": 1.0, "rows": queries["per_sequence"]}
    recipe["student"]["first"] = recipe["student"].pop("first_layer")
    recipe["train"]["clip"] = recipe["train"].pop("max_grad_norm")
    path.write_text(json.dumps(state))
    again = layerwise(config, out)
    whole = layerwise(config, tmp_path / "whole")
    for layer, trained in whole.done.items():
        for name, tensor in trained.state.items():
            assert torch.equal(again.done[layer].state[name], tensor)
    assert not (out / "shelf").exists()


def test_a_resumed_run_logs_every_step_once(cut, tmp_path):
    config, out = cut
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "lay')  # torn by a kill
    layerwise(config, out)
    layerwise(config, tmp_path / "whole")
    logs = []
    for directory in (out, tmp_path / "whole"):
        rows = read_metrics(directory / "metrics.jsonl")
        logs.append([{k: v for k, v in row.items() if k != "seconds"} for row in rows])
    assert logs[0] == logs[1]


def test_what_is_damaged_is_named(cut):
    config, out = cut
    student, hidden = (
        out / "students/2.safetensors",
        out / "hidden_states/arm/4/held_out/0.safetensors",
    )
    for path in (hidden, student):
        whole = path.read_bytes()
        path.write_bytes(whole[:50])
        with pytest.raises(DistillError, match=f"{path}: missing or damaged.* remove {out} to"):
            layerwise(config, out)
        path.write_bytes(whole)
    state = json.loads((out / "state.json").read_text())
    older = [{k: v for k, v in state.items() if k != "evaluator_at"}, state | {"done": {"2": {}}}]
    for record in older:
        (out / "state.json").write_text(json.dumps(record))
        with pytest.raises(DistillError, match="damaged, or an older version's"):
            layerwise(config, out)
    (out / "state.json").write_text(json.dumps(state))
    layerwise(config, out)


def test_a_disk_that_takes_nothing_is_named(tmp_path):
    (tmp_path / "store").write_text("no directory")
    with pytest.raises(DistillError, match=r"arm/0\.safetensors: cannot be written"):
        TensorStore(tmp_path / "store").put("arm/0", hidden=torch.zeros(2))


def test_the_command_and_its_output(tmp_path):
    base = save(tmp_path / "base", "glm_moe_dsa", indexer_types=["full"] * 8)
    path = tmp_path / "r.toml"
    path.write_text(
        f'model = "{base}"\ndtype = "float32"\n[arm]\nretention = "1/4"\n[data]\nlength = 48\n'
        "train = 3\nheld_out = 1\ncalibration = 2\nshortest = 16\n[queries]\nper_sequence = 8\n"
        "[train]\nsteps = 2\nbatch = 2\nmicro_batch = 2\n"
    )
    out = tmp_path / "out"
    command = ["layerwise", str(path), "--out", str(out), "--device", "cpu", "--save-anyway"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "the indexers of layers 4 train" in result.output
    assert "layer 4 from" in result.output
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with apply_indexer(model, out / "indexer"):
        pass
    tensors = load_file(out / "indexer" / "indexer.safetensors")
    assert {n.split(".indexer.")[0] for n in tensors} == {"model.layers.4.self_attn"}
    assert "layer 4 from" in (out / "indexer" / "README.md").read_text()


def test_what_needs_the_whole_model_is_refused(checkpoint, tmp_path):
    for sections, why in (
        ({"teacher": {"kind": "attention"}}, "consumers' indexers teach"),
        ({"closed_form": {"rounds": 2}}, "visited once"),
        ({"train": {"patience": 2}}, "known only after the last step"),
        ({"train": {"trackers": ["trackio"]}}, "only metrics.jsonl is written"),
        ({"train": {"precision": "bf16"}}, "everything runs in `dtype`"),
        ({"student": {"first_layer": "auto"}}, "student.first_layer 'auto'.* 'keep' or 'train'"),
    ):
        with pytest.raises(DistillError, match=why):
            load_layerwise_setup(recipe(checkpoint, **sections), tmp_path, tmp_path)
    directory, _ = sharded(tmp_path / "v4", "deepseek_v4")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY_MODEL / name, directory / name)
    with pytest.raises(DistillError, match="cannot be run layer by layer"):
        load_layerwise_setup(recipe(directory), tmp_path, tmp_path / "out")
    headless = save(tmp_path / "headless", "mistral_large4_text")
    with pytest.raises(DistillError, match="no causal language model of this type"):
        load_layerwise_setup(recipe(headless), tmp_path, tmp_path / "out")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A checkpoint whose layers 2, 3, 5, 6 and 7 ship without an indexer, as GLM-5.2's do."""
    types = [{"F": "full", "S": "shared"}[letter] for letter in "FFSSFSSS"]
    return save(tmp_path_factory.mktemp("shared"), "glm_moe_dsa", indexer_types=types)


def test_a_full_layer_without_an_indexer_is_refused(shared, tmp_path):
    """One that serves itself alone never trains, yet it would be run."""
    config = recipe(shared, arm={"retention": None, "pattern": "FSSSFSSF"})
    with pytest.raises(
        DistillError, match=r"layer 7 has no indexer in this checkpoint .*make the layer shared"
    ):
        load_layerwise_setup(config, tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("base", "sections"),
    [
        ("checkpoint", {"student": {"start": "closed_form"}}),
        (
            "checkpoint",
            {"arm": {"retention": "1/4", "lag": 1}, "student": {"start": "closed_form"}},
        ),
        ("checkpoint", {"arm": {"retention": "1/2"}, "train": {"states": "off_policy"}}),
        ("checkpoint", {"arm": {"retention": "1/2"}, "choice": {"checkpoint": "recall"}}),
        ("checkpoint", {"choice": {"checkpoint": "recall"}, "train": {"states": "off_policy"}}),
        ("shared", {"student": {"start": "closed_form"}}),
    ],
    ids=["closed form", "lag", "off-policy", "by recall", "off-policy, by recall", "shared layers"],
)
def test_the_plan_is_what_happens(request, tmp_path, monkeypatch, base, sections):
    checkpoint = request.getfixturevalue(base)
    config = recipe(checkpoint, **sections)
    sizes, native = sizes_of(meta_model(AutoConfig.from_pretrained(checkpoint)))
    cost = estimate(sizes, native, config, itemsize=4)
    opened, used = [], [0]
    real_open, real_put = Layers.open, TensorStore.put

    def count(self, layer):
        opened.append(layer)
        return real_open(self, layer)

    def weigh(self, name, **tensors):
        real_put(self, name, **tensors)
        used[0] = max(used[0], self.bytes_used())

    monkeypatch.setattr(Layers, "open", count)
    monkeypatch.setattr(TensorStore, "put", weigh)
    layerwise(config, tmp_path / "a")
    assert len(opened) == cost.layers_read
    disk = sum(cost.disk.values())
    assert 0.4 * disk < used[0] < 1.3 * disk, (used[0] / disk, cost.disk)
