"""A `ReuseSchedule` on vLLM's own DSA models, as a plugin of `vllm.general_plugins`.

For quality: the right selections in the right layers, one layer after the other. It claims no speed
(that needs kernels which overlap indexer and attention). `EVALKIT_SCHEDULE` names the schedule in
its text form; without it nothing is touched. Imports neither torch nor vLLM until it is used, and
of this project only `evalkit.dsa`, which needs the standard library alone.

- `plugin`: the entry point; what it replaces, and for which releases.
- `releases`: the releases whose source was read, by fingerprint.
- `request`: the schedule that the environment asks for, checked against model and settings.
- `routing`: which buffer every layer writes, merges and reads; pure.
- `buffers`: those buffers, and the one copy.
- `deepseek_v4`, `deepseek_v32`: where the layers of a family keep their buffers.
- `report`: what every rank says.
"""
