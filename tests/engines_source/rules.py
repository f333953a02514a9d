"""The engines' own rules, cut out of their text by its syntax tree and executed as they are.

A rule takes the finished configuration object and a layer, and says whether the layer is shared.
What it needs beside that (the layer's name, a logger) is put in by hand; the rule itself is not.
"""

from __future__ import annotations
import __future__

import ast
import copy
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from transformers import AutoConfig, DeepseekV3Config, PretrainedConfig

from tests.engines_source.releases import sources

Rule = Callable[[Any, int], bool]


def functions(text: str, *names: str) -> dict[str, Any]:
    """Functions and classes of a module by name, executed together."""
    tree = ast.parse(text)
    found = [node for node in tree.body if getattr(node, "name", "") in names]
    assert {node.name for node in found} == set(names)
    return executed(
        found, {"PretrainedConfig": PretrainedConfig, "PreTrainedConfig": PretrainedConfig}
    )


def executed(statements: list[ast.stmt], namespace: dict[str, Any]) -> dict[str, Any]:
    """The namespace after some statements; annotations are not evaluated."""
    module = ast.fix_missing_locations(ast.Module(statements, type_ignores=[]))
    flags = __future__.annotations.compiler_flag
    exec(compile(module, "<engine>", "exec", flags=flags, dont_inherit=True), namespace)
    return namespace


# -- SGLang -------------------------------------------------------------------------------------


def sglang_rule(version: str) -> Rule:
    text = sources("sglang", version)["sglang/srt/configs/model_config.py"]
    names = ("_hf_arch", "_hf_attr", "is_deepseek_dsa", "dsa_layer_skips_topk")
    helpers = [name for name in names if f"def {name}(" in text]
    return functions(text, *helpers)["dsa_layer_skips_topk"]


def sglang_overrides(version: str) -> Callable[[Any, Mapping[str, Any]], None]:
    """The end of `get_config`: what becomes of --json-model-override-args."""
    text = sources("sglang", version)["sglang/srt/utils/hf_transformers/config.py"]
    tree = ast.parse(text)
    (function,) = (n for n in tree.body if getattr(n, "name", "") == "get_config")
    block = [n for n in function.body if _tests(n, "model_override_args")][-1]
    code = ast.fix_missing_locations(ast.Module([block], type_ignores=[]))
    compiled = compile(code, "<engine>", "exec")
    never = type("DeepseekV41Config", (), {})

    def apply(config: Any, overrides: Mapping[str, Any]) -> None:
        space = {"config": config, "model_override_args": dict(overrides)}
        exec(compiled, space | {"PretrainedConfig": PretrainedConfig, "DeepseekV41Config": never})

    return apply


# -- vLLM and vllm-ascend -----------------------------------------------------------------------


def vllm_overrides(version: str) -> Callable[[Any, Mapping[str, Any]], None]:
    """vLLM puts overrides on the finished object by transformers' own `update`."""
    text = sources("vllm", version)["vllm/transformers_utils/config.py"]
    assert "config.update(hf_overrides_kw)" in text
    return lambda config, overrides: config.update(dict(overrides))


def block_rule(package: str, version: str, path: str) -> Rule:
    """The statements from the frequency's `getattr` to the `if` that decides."""
    for body in _bodies(ast.parse(sources(package, version)[path])):
        starts = [i for i, node in enumerate(body) if _reads(node, "index_topk_freq")]
        ends = [i for i, node in enumerate(body) if _tests(node, "index_topk_pattern")]
        if starts and ends:
            chosen = [n for n in body[starts[0] : ends[0] + 1] if _is_getattr(n) or _is_if(n)]
            break
    else:
        raise AssertionError(f"{path}: no rule")
    result = next(
        node.id
        for node in ast.walk(chosen[-1])
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    module = ast.fix_missing_locations(ast.Module(chosen, type_ignores=[]))
    compiled = compile(module, "<engine>", "exec")

    def rule(config: Any, layer: int) -> bool:
        space = {"config": config, "layer_id": layer, result: False}
        exec(compiled, space)
        return bool(space[result])

    return rule


def hy_v4_rule(version: str) -> Rule:
    text = sources("vllm", version)["vllm/models/hy_v4/nvidia/attention.py"]
    layers = functions(text, "compute_skip_topk_layers")["compute_skip_topk_layers"]
    return lambda config, layer: layer in layers(config)


def ascend_v4_rule(version: str) -> Rule:
    """The `if` of vllm-ascend's DeepSeek-V4 that is gated by `use_index_cache`."""
    text = sources("vllm-ascend", version)["vllm_ascend/models/deepseek_v4.py"]
    (block,) = (n for n in ast.walk(ast.parse(text)) if _tests(n, "use_index_cache"))
    module = ast.fix_missing_locations(ast.Module([block], type_ignores=[]))
    compiled = compile(module, "<engine>", "exec")

    def rule(config: Any, layer: int) -> bool:
        space = {"config": config, "config_layer_idx": layer, "skip_topk": False}
        ratio = config.compress_ratios[layer]
        space |= {"self": SimpleNamespace(compress_ratio=ratio), "prefix": f"model.layers.{layer}"}
        exec(compiled, space)
        return bool(space["skip_topk"])

    return rule


def v41_source_rule(version: str) -> Callable[[list[int], int], int]:
    """The assignment of `index_source_layer_id` in vLLM's DeepSeek-V4.1."""
    text = sources("vllm", version)["vllm/models/deepseek_v41/attention.py"]
    (value,) = (
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "self.index_source_layer_id"
        and isinstance(node.value, ast.Call)
    )
    compiled = compile(ast.Expression(value), "<engine>", "eval")

    def rule(layers: list[int], layer: int) -> int:
        holder = SimpleNamespace(index_source_layers=tuple(layers))
        return int(eval(compiled, {"self": holder, "layer_id": layer}))

    return rule


# -- configuration classes ----------------------------------------------------------------------


def config_object(config: Mapping[str, Any]) -> Any:
    """What the engine's loader makes of a config.json, as a copy of its own.

    transformers' class for GLM-5 and hy_v4; both engines register `DeepseekV3Config` for
    DeepSeek-V3.2.
    """
    return copy.copy(_finished(json.dumps(config)))


@lru_cache(maxsize=256)
def _finished(text: str) -> Any:
    config = json.loads(text)
    model_type = config.pop("model_type")
    architectures = {
        "glm_moe_dsa": "GlmMoeDsaForCausalLM",
        "deepseek_v32": "DeepseekV32ForCausalLM",
        "hy_v4": "HYV4ForCausalLM",
        "longcat_flash": "LongcatFlashForCausalLM",
    }
    config |= {"architectures": [architectures[model_type]], "index_topk": 2048}
    if model_type in ("deepseek_v32", "longcat_flash"):
        return DeepseekV3Config(**config)
    return AutoConfig.for_model(model_type, **config)


def _bodies(tree: ast.AST) -> list[list[ast.stmt]]:
    fields = ("body", "orelse")
    lists = [getattr(node, name, None) for node in ast.walk(tree) for name in fields]
    return [body for body in lists if isinstance(body, list)]


def _is_getattr(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    call = node.value
    return (
        isinstance(call.func, ast.Name)
        and call.func.id == "getattr"
        and (isinstance(call.args[0], ast.Name) and call.args[0].id == "config")
    )


def _is_if(node: ast.stmt) -> bool:
    return isinstance(node, ast.If)


def _reads(node: ast.stmt, field: str) -> bool:
    return _is_getattr(node) and any(
        isinstance(n, ast.Constant) and n.value == field for n in ast.walk(node)
    )


def _tests(node: ast.AST, name: str) -> bool:
    """An `if` whose condition names a variable (an underscore in front aside) or a field."""
    if not isinstance(node, ast.If):
        return False
    names = {n.id.lstrip("_") for n in ast.walk(node.test) if isinstance(n, ast.Name)}
    values = {n.value for n in ast.walk(node.test) if isinstance(n, ast.Constant)}
    return name in names | values
