"""Prediction files of other harnesses with invented content."""

import json
from pathlib import Path

from evalkit.run.scoring import score_run


def lines(path: Path, rows) -> Path:
    """Write JSON lines; text is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def qa(i, pred=None, **more):
    """A record of LongBench's script."""
    answers = [f"answer {i}"]
    record = {"pred": f"answer {i}" if pred is None else pred, "answers": answers}
    return record | {"all_classes": None, "length": 1000 + i} | more


def trec(i, pred="Food"):
    return qa(i, pred, answers=["Food"], all_classes=["Food", "Date"])


def ruler(i, pred=None, **more):
    """A record of RULER's script."""
    gold = [f"{1000 + i}"]
    record = {"index": i, "pred": gold[0] if pred is None else pred, "input": "…", "outputs": gold}
    return record | {"others": {}, "truncation": -1, "length": 4000} | more


def needle(length, depth, response="Eat a sandwich in Dolores Park.", **more):
    """A result of the first needle test."""
    text = (
        "\nThe best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a"
        " sunny day.\n"
    )
    record = {"model": "m", "context_length": length, "depth_percent": depth, "version": 1}
    return record | {"needle": text, "model_response": response, "score": 10} | more


def v2(i, response=None, **more):
    """A result of LongBench v2's script."""
    answer = "ABCD"[i % 4]
    record = {"_id": f"id{i}", "domain": "Code", "difficulty": "easy", "length": "short"}
    said = f"The correct answer is ({answer})." if response is None else response
    return record | {"answer": answer, "response": said, "pred": answer, "judge": True} | more


def sample_log(i, doc, response, **more):
    """A line of a sample log of lm-evaluation-harness."""
    record = {"doc_id": i, "doc": doc, "target": "", "arguments": {}, "resps": [[response]]}
    return record | {"filtered_resps": [response], "filter": "none", "metrics": ["score"]} | more


def prediction(i, letter="A", said=None, **metadata):
    """A prediction of evalscope, of LongBench v2."""
    text = f"So it is.\nANSWER: {letter}" if said is None else said
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    facts = {"_id": f"id{i}", "domain": "Code", "sub_domain": "", "difficulty": "easy"}
    return {
        "index": i,
        "model": "m",
        "model_output": {"model": "m", "choices": [{"message": message, "stop_reason": "stop"}]},
        "messages": [{"role": "user", "content": f"Read:\n<text>\nbook {i // 2}\n</text>\nWho?"}],
        "metadata": facts | metadata,
    }


def review(i, target="A", said=None, **metadata):
    """A review of evalscope, of LongBench v2 without other `metadata`."""
    said = f"ANSWER: {target}" if said is None else said
    metadata = metadata or {"_id": f"id{i}", "difficulty": "easy"}
    score = {"value": {"acc": 1.0}, "extracted_prediction": "A", "prediction": said}
    scored = {"score": score, "sample_id": i, "group_id": i, "sample_metadata": metadata}
    return {"index": i, "target": target, "messages": [], "sample_score": scored}


def helmet(i, **more):
    """A record of HELMET's results."""
    record = {"index": i, "question": f"Who is {i}?", "answer": [f"name {i}"], "input_len": 4000}
    said = {"output": f"Answer: Name {i}.", "parsed_output": f"Name {i}.", "output_len": 5}
    return record | said | more


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def scores(store, arm="a"):
    """What an imported arm scores, by sample."""
    score_run(store)
    return {i: row.score for i, row in store.read_scores(arm).items()}
