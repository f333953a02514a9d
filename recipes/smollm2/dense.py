"""SmolLM2 as it is, in safetensors, for engines that read no GGUF.

python -m recipes.smollm2.dense runs/smollm2 writes runs/smollm2/dense from the GGUF file there,
weights as transformers reads them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import transformers as tf

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
OF_THE_FILE = ("quantization_config", "dtype")


def main() -> None:
    """Read, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    read = tf.LlamaForCausalLM.from_pretrained(folder, gguf_file=FILE, dtype=torch.float32)
    fields = {k: v for k, v in read.config.to_dict().items() if k not in OF_THE_FILE}
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**fields)).float()  # one that knows no quantisation
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder / "dense")
    tf.AutoTokenizer.from_pretrained(folder, gguf_file=FILE).save_pretrained(folder / "dense")


if __name__ == "__main__":
    main()
