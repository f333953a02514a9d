"""Prediction files of other harnesses with invented content."""

import json
from pathlib import Path


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


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
