"""Write a finished run as a model folder: `python -m recipes.tiny.export RUN FOLDER`.

Weights in float16, the tokenizer beside them.  Works on unfinished runs too (their last
checkpoint).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import DeepseekV32ForCausalLM, GenerationConfig

from distill.data.tiny_corpus import tokenizer
from recipes.tiny.architecture import make_config


def export(run: Path, folder: Path) -> int:
    """Write the folder; returns the step of the checkpoint."""
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    model: Any = DeepseekV32ForCausalLM(make_config()).float()
    model.load_state_dict(state["model"])
    model.generation_config = GenerationConfig(
        do_sample=False,
        bos_token_id=tokenizer.BOS,
        eos_token_id=tokenizer.EOS,
        pad_token_id=tokenizer.PAD,
    )
    model.half().save_pretrained(folder)
    tokenizer.save(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return int(state["step"])


def main() -> None:
    """Export and say what was written."""
    parser = argparse.ArgumentParser(description="write a run as a model folder")
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    print(f"step {export(args.run, args.folder)} -> {args.folder}")


if __name__ == "__main__":
    main()
