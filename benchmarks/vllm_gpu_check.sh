#!/usr/bin/env bash
# The vLLM plugin on GPUs: for a day with some. IT HAS NOT RUN YET; docs/serving.md says so.
#
#   benchmarks/vllm_gpu_check.sh MODEL TP [OUT]      # a checkpoint of V3.2, GLM-5 or V4-Flash
#   benchmarks/vllm_gpu_check.sh MODEL TP --dry      # prints the start lines, starts nothing
#
# Every arm is started twice, with CUDA graphs and with --enforce-eager. Read at the end:
#   stock = plugin, all full        greedy continuations equal: the plugin alone changes nothing
#   engine's own 1/4 = plugin 1/4   equal selections: the plugin is IndexCache (V3.2 and GLM-5)
#   graphs = eager, for every arm   the copies are in the graphs, and the mask reaches them
#   requests/s                      of `vllm bench serve`, each arm beside the engine's own IndexCache
set -euo pipefail
cd "$(dirname "$0")/.."
model=$1 tp=$2 out=${3:-runs/vllm_gpu_check} port=30000
url=http://127.0.0.1:$port
export VLLM_SERVER_DEV_MODE=1

text() { # schedule in the plugin's words
  evalkit schedule export "$model" --engine vllm-plugin "$@" | sed -n 's/^environment EVALKIT_SCHEDULE=//p'
}
own=$(evalkit schedule export "$model" --engine vllm --retention 1/4 2>/dev/null |
  sed -n 's/^overrides *//p' || true)

declare -A schedule=(
  [stock]="" [own]="" [full]=$(text --enabled) [quarter]=$(text --retention 1/4)
  [mli]=$(text --lag 1) [quarter_mli]=$(text --retention 1/4 --lag 1)
)
arms=(stock full quarter mli quarter_mli)
[[ -n $own ]] && arms=(stock full own quarter mli quarter_mli)

start() { # arm, mode
  local flags=(--tensor-parallel-size "$tp" --port "$port")
  [[ $2 == eager ]] && flags+=(--enforce-eager)
  [[ $1 == own ]] && flags+=(--hf-overrides "$own")
  if [[ $out == --dry ]]; then
    echo "EVALKIT_SCHEDULE='${schedule[$1]}' vllm serve $model ${flags[*]}"
    return
  fi
  EVALKIT_SCHEDULE=${schedule[$1]} vllm serve "$model" "${flags[@]}" >"$out/$1.$2.log" 2>&1 &
  server=$!
  until curl -sf "$url/health" >/dev/null; do
    kill -0 "$server" || { tail -5 "$out/$1.$2.log"; exit 1; }
    sleep 5
  done
}

measure() { # arm, mode: what every rank runs, continuations of long prompts, throughput
  curl -s -X POST "$url/collective_rpc" -H 'content-type: application/json' \
    -d '{"method": "evalkit_schedule"}' >"$out/$1.$2.ranks.json" || true
  python benchmarks/vllm_continuations.py "$url" "$model" >"$out/$1.$2.txt"
  vllm bench serve --model "$model" --base-url "$url" --dataset-name random --num-prompts 64 \
    --random-input-len 16384 --random-output-len 256 >"$out/$1.$2.bench.txt"
}

[[ $out == --dry ]] || mkdir -p "$out"
for arm in "${arms[@]}"; do
  for mode in graphs eager; do
    start "$arm" "$mode"
    [[ $out == --dry ]] && continue
    measure "$arm" "$mode"
    kill "$server"
    wait "$server" || true
  done
done
[[ $out == --dry ]] && exit

same() { cmp -s "$out/$1.txt" "$out/$2.txt" && echo "equal    $1 = $2" || echo "DIFFERS  $1, $2"; }
same stock.graphs full.graphs
[[ -n $own ]] && same own.graphs quarter.graphs
for arm in "${arms[@]}"; do same "$arm.graphs" "$arm.eager"; done
grep -H "Request throughput" "$out"/*.bench.txt
