#!/usr/bin/env bash
# Proofs and times on one GPU, under 8 minutes on an H200:   benchmarks/gpu_check.sh
# The same with tiny sizes on the CPU, to see that it runs:   benchmarks/gpu_check.sh --dry
# PYTHON names the interpreter (default: python).
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec timeout 470 "${PYTHON:-python}" benchmarks/gpu_check.py "$@"
