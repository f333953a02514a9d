"""What arms would save that start from the hidden states of the first layer in which they differ.

    python benchmarks/shared_layers.py

Counted, not timed: the prompt's passes through layers of all retentions of the demo, each arm alone
and each arm from the one that it agrees with longest. Decode is not shared, and a kept state has to
be copied, so that this is the most that could be saved.
"""

from __future__ import annotations

from evalkit.dsa import ReuseSchedule

RETENTIONS = (1, "1/2", "1/4", "1/8", "1/16")


def agreeing(one: ReuseSchedule, two: ReuseSchedule) -> int:
    """Leading layers that select alike in prefill."""
    pairs = [list(zip(arm.computes, arm.sources("prefill"), strict=True)) for arm in (one, two)]
    return next((i for i, (a, b) in enumerate(zip(*pairs, strict=True)) if a != b), len(one))


def main() -> None:
    """Print the counts."""
    print("| layers | passes, each alone | shared | times as many |\n|---:|---:|---:|---:|")
    for layers in (24, 47, 61, 78):
        arms = [ReuseSchedule.uniform(layers, retention) for retention in RETENTIONS]
        saved = sum(
            max(agreeing(arm, before) for before in arms[:i]) for i, arm in enumerate(arms) if i
        )
        alone = layers * len(arms)
        print(f"| {layers} | {alone} | {alone - saved} | {alone / (alone - saved):.2f} |")


if __name__ == "__main__":
    main()
