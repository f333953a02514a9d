"""Build the small model's tokenizer: whole words for what it knows, bytes for everything else.

A BPE model without merges, used as a lossless word list: the pre-tokenizer cuts the text into
words with their leading space, single digits, single spaces, newlines and signs; a piece of the
vocabulary becomes one token (`ignore_merges`), any other piece falls back to its UTF-8 bytes.
As no token reaches over a cut, `encode(a + b) == encode(a) + encode(b)` wherever a cut lies
between `a` and `b`, e.g. before a space, a newline or a digit.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from distill.data.tiny_corpus import wording

PAD, BOS, EOS = 0, 1, 2
SPECIAL = ("<pad>", "<bos>", "<eos>")
PIECES = r" ?[A-Za-z]+|[0-9]| |\n|[^ \nA-Za-z0-9]+?"
SIGNS = ".,:;?!-='\"()"
MAX_LENGTH = 2048


def _sentences() -> list[str]:
    """Every sentence whose words are to be single tokens."""
    several = wording.plural()
    out: list[str] = [several.intro, several.question, several.answer, ", and"]
    for stack in wording.haystacks().values():
        out += stack.units
    for entry in wording.wordings().values():
        out += [entry.intro, entry.needle, entry.question, entry.answer]
    return [re.sub(r" ?\{(key|value|query)\}", "", text) for text in out]


def vocabulary() -> dict[str, int]:
    """Token -> id.  Special tokens, signs and digits first, then bytes, words, key words."""
    tokens: list[str] = [*SPECIAL, " ", "\n", *"0123456789", *SIGNS]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    words: list[str] = []
    for text in _sentences():
        for piece in re.findall(PIECES, text):
            words.append(piece)
            bare = piece.strip(" ")
            # A word that can open a line is known with and without its leading space.
            if bare and (bare[0].isupper() or piece == bare):
                words += [bare, " " + bare]
    known = set(tokens)
    tokens += sorted({word for word in words if word.strip() and word.strip(" ").isalpha()} - known)
    tokens += [" " + word for word in wording.adjectives()]
    tokens += list(wording.nouns())
    tokens += [f"<unused{i}>" for i in range(-len(tokens) % 8)]
    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        raise ValueError("a token is listed twice")
    return ids


def build() -> PreTrainedTokenizerFast:
    """The tokenizer; adds one `<bos>` in front and no `<eos>`."""
    core = Tokenizer(
        models.BPE(vocab=vocabulary(), merges=[], byte_fallback=True, ignore_merges=True)
    )
    core.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "isolated")
    core.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    core.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    core.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", BOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        **dict(zip(("pad_token", "bos_token", "eos_token"), SPECIAL, strict=True)),
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_LENGTH,
        padding_side="left",
    )


def save(folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    build().save_pretrained(folder)
    # The installed release writes a class name that older ones do not know; both know this one.
    config = folder / "tokenizer_config.json"
    entry = json.loads(config.read_text(encoding="utf-8"))
    entry["tokenizer_class"] = "PreTrainedTokenizerFast"
    config.write_text(json.dumps(entry, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Save the tokenizer into a folder."""
    parser = argparse.ArgumentParser(description="build the small model's tokenizer")
    parser.add_argument("folder", type=Path)
    save(parser.parse_args().folder)


if __name__ == "__main__":
    main()
