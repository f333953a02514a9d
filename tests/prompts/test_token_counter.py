"""Counting by words equals tokenising the whole, or is not done."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from evalkit.core.errors import EvalkitError
from evalkit.core.types import Sample
from evalkit.prompts.renderer import ChatRenderer
from evalkit.prompts.token_counter import TokenCounter

CORPUS = [
    "The tide came in. The boat-house was shut, and 1234567 lamps (or 89) lit.\n\nNobody came.",
    "One of the codes for 3f2a9c1d-77aa-4b0e is: 5512345. A name: café, 山很高 河水.  Two spaces",
    "Tide Inc., Boat Inc., and Lamp Inc.,\nwere one (Inc.).\n",
] * 20
SPLIT = (
    r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def wrapped(tokenizer):
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def byte_level(split=SPLIT, normalizer=None, prefix=False):
    from tokenizers import Regex

    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    steps = [pre_tokenizers.Split(Regex(split), "isolated")] if split else []
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<s>", "<user>"], initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return wrapped(tokenizer)


def metaspace():
    tokenizer = Tokenizer(models.BPE(byte_fallback=False, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    words = pre_tokenizers.Metaspace()
    tokenizer.pre_tokenizer = words
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "<s>"])
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.pre_tokenizer = None
    return wrapped(tokenizer)


TOKENIZERS = {
    "bytes": byte_level(),
    "single digits": byte_level(SPLIT.replace("{1,3}", "")),
    "spaces": metaspace(),
}
COUNTERS = {name: TokenCounter.of(tokenizer) for name, tokenizer in TOKENIZERS.items()}
PIECES = ["The", " tide", " ", "  ", "\n", "\n\n", ".", ",", "-", " a-b", "café", " 山很高", "\t"]
PIECES += ["3f2a9c1d-77aa-4b0e-91ab", "1234567", "\xa0", "\u3000", "<user>", "<s>", "<unk>", "'s"]
PIECES += ["is: ", "é", "\u200b", "\u0308", "▁"]
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=20)


@pytest.mark.parametrize("name", COUNTERS)
@given(pieces=TEXTS)
@settings(max_examples=300, deadline=None)
def test_the_sum_is_the_whole(name, pieces):
    text = "".join(pieces)
    for special in (False, True):
        whole = len(TOKENIZERS[name].encode(text, add_special_tokens=special))
        assert COUNTERS[name].count(text, special=special) == whole
        assert COUNTERS[name].count(text, special=special) == whole  # now from memory


FILLING = "The boat-house was shut, 1234567 lamps (or 89) lit, and nobody came.  Two spaces " * 2
PLACES = ["{}", "{} ", " {}", "{}\n", "\n{}", "<s>{}", "{}s", "{}."]


@pytest.mark.parametrize("name", COUNTERS)
@given(
    ends=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3),
    order=st.lists(st.integers(0, 2), min_size=1, max_size=6),
    first=st.lists(st.sampled_from(["7:\n", "<s>\n", "The\n", "\n", ""]), min_size=6, max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_documents_that_come_again_are_the_whole(name, ends, order, first):
    documents = [f"{''.join(a)} {FILLING} {''.join(b)}" for a, b in ends]
    chosen = [documents[i % len(documents)] for i in order]
    text = "\n\n".join(a + document for a, document in zip(first, chosen, strict=False))
    check(name, text)


@pytest.mark.parametrize("name", COUNTERS)
@given(start=TEXTS, places=st.lists(st.sampled_from(PLACES), min_size=1, max_size=5), rest=TEXTS)
@settings(max_examples=200, deadline=None)
def test_lines_that_begin_alike_are_the_whole(name, start, places, rest):
    start = f"{''.join(start)} tide came in and {''.join(rest)}"
    lines = [places[i % len(places)].format(f"{start}{i}") for i in range(120)]
    check(name, "\n".join(lines))


def check(name, text):
    whole = len(TOKENIZERS[name].encode(text, add_special_tokens=False))
    assert [COUNTERS[name].count(text) for _ in range(2)] == [whole, whole]


def test_of_what_comes_again_only_the_ends_are_looked_at():
    counter = COUNTERS["bytes"]
    document = f"First {FILLING}last."
    text = f"Asked.\n\nDocument 6:\n{document}\n\nDocument 7:\n{document}"
    left, tokens = counter._shortened(text)
    assert left == "Asked.\n\nDocument 6:\nFirst last.\n\nDocument 7:\nFirst last."
    inner = len(TOKENIZERS["bytes"].encode(f"a {FILLING.strip()}", add_special_tokens=False)) - 1
    assert tokens == 2 * inner

    text = "\n".join(f"One of the special codes for number {i} is: {i}." for i in range(300))
    left, tokens = counter._shortened(text)
    assert left.startswith("One number 0 is: 0.\nOne number 1 is")
    assert tokens == 300 * counter._sum(["of", "the", "special", "codes", "for"])


def test_special_tokens_stay_where_they_are():
    """Behind one nothing is cut, so the words beside it are not left out."""
    text = f"Asked.\n\nDocument 6:\nFirst <user> {FILLING} last."
    assert COUNTERS["bytes"]._shortened(text) == (text, 0)
    text = f"Asked.\n\nDocument 6:\nFirst> {FILLING} last."
    assert COUNTERS["bytes"]._shortened(text) == (text, 0)


def test_marks_in_a_row_are_not_cut_from_each_other():
    """``.,`` may be one token, and is where a line ends with it."""
    text = "Made by Tide Inc.,\nBoat.-,\nLamp and 1234567.,\nShut"
    for name in COUNTERS:
        check(name, text)


def test_words_of_letters_and_digits_are_cut_where_no_token_spans_the_cut():
    counter = COUNTERS["bytes"]
    assert "{1,3}" in counter._runs.pattern
    text = "The codes for 3f2a9c1d-77aa-4b0e-91ab-00ff00ff00ff is: 5512345aa99bb77cc66."
    assert counter.count(text) == len(TOKENIZERS["bytes"].encode(text, add_special_tokens=False))
    assert {" 3", "-77", " 551", "234"} <= set(counter._pieces)
    assert "3f2a9c1d-77aa-4b0e-91ab-00ff00ff00ff" not in counter._counts


def test_a_vocabulary_with_tokens_across_words_is_not_cut():
    assert TokenCounter.of(byte_level(split=None)) is None


def test_padding_that_others_asked_for_is_not_counted():
    tokenizer = byte_level()
    counter = TokenCounter.of(tokenizer)
    tokenizer.pad_token = "<s>"
    tokenizer(["a", "b c d"], padding=True, truncation=True, max_length=2)
    text = f"Asked.\n\nDocument 6:\nFirst {FILLING} last."
    assert counter.count(text) == len(tokenizer.encode(text, add_special_tokens=False))


def test_normalisers_that_bring_spaces_together_are_not_cut():
    """``a \u0301 b`` has two spaces side by side once the accent is stripped."""
    strips = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    assert TokenCounter.of(byte_level(normalizer=strips)) is None
    for normalizer in (normalizers.NFC(), normalizers.Sequence([normalizers.NFKC()])):
        assert TokenCounter.of(byte_level(normalizer=normalizer)) is not None


def test_words_that_are_not_alike_everywhere_are_not_cut():
    """A space before every piece of a word; a mark at the end of a word; an added word."""
    assert TokenCounter.of(byte_level(prefix=True)) is None
    facts = json.loads(byte_level().backend_tokenizer.to_str())
    facts["model"] |= {"end_of_word_suffix": "</w>", "merges": []}
    assert TokenCounter.of(wrapped(Tokenizer.from_str(json.dumps(facts)))) is None
    for added in ("77", "tide", "-a"):
        tokenizer = byte_level()
        tokenizer.add_tokens([added])
        assert TokenCounter.of(tokenizer) is None


def test_a_vocabulary_without_a_space_is_not_cut():
    """A character that is no token vanishes or becomes one with its neighbours."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(special_tokens=["<unk>", "<s>"]))
    tokenizer.pre_tokenizer = None
    assert TokenCounter.of(wrapped(tokenizer)) is None


def test_digits_that_are_grouped_from_the_right_are_not_cut():
    """Of ``81638198089One`` no three digits are taken together: a letter follows."""
    right = SPLIT.replace("{1,3}", r"{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))")
    tokenizer = byte_level(right)
    counter = TokenCounter.of(tokenizer)
    assert counter._runs is None
    text = "Shut: 1234567\nThe codes 81638198089One and 1234\nboat"
    assert counter.count(text) == len(tokenizer.encode(text, add_special_tokens=False))


def test_an_ideographic_space_before_a_space_is_a_gap():
    """As in the vocabularies of Llama 3 and GPT-4o."""
    tokenizer = byte_level()
    facts = json.loads(tokenizer.backend_tokenizer.to_str())
    pairs = [("ã", "Ģ"), ("ãĢ", "Ģ"), ("ãĢĢ", "Ġ")]
    facts["model"]["merges"] += [pair for pair in pairs if pair not in facts["model"]["merges"]]
    for pair in pairs:
        facts["model"]["vocab"].setdefault("".join(pair), len(facts["model"]["vocab"]) + 1)
    tokenizer = wrapped(Tokenizer.from_str(json.dumps(facts)))
    assert "ãĢĢĠ" in tokenizer.get_vocab()
    counter = TokenCounter.of(tokenizer)
    for text in ("tide\u3000 came", "tide \u3000 came in", "\u3000 \u3000tide", "x\u3000 "):
        assert counter.count(text) == len(tokenizer.encode(text, add_special_tokens=False))


def test_tokenizers_of_which_nothing_is_known_are_asked_themselves():
    class Plain:
        bos_token_id = None

        def encode(self, text, add_special_tokens=True):
            return list(text.encode())

    assert TokenCounter.of(Plain()) is None
    assert ChatRenderer(Plain()).count(sample("two words")) == len("two words It is")


def sample(text):
    return Sample("tide/0", "tide", text, ("x",), "ruler_all", 8, answer_prefix=" It is")


def test_a_wrong_count_is_an_error_when_the_prompt_is_made():
    renderer = ChatRenderer(TOKENIZERS["bytes"])
    asked = sample("The tide came in.")
    assert renderer.count(asked) == len(renderer.render(asked).token_ids)
    other = sample("The tide came in again.")
    renderer._counter._counts["tide"] += 1
    assert renderer.count(other) == 1 + len(TOKENIZERS["bytes"].encode(other.text + " It is"))
    with pytest.raises(EvalkitError, match=r"^tide/0: the prompt has \d+ tokens and was counted"):
        renderer.render(other)
