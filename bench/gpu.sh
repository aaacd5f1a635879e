#!/usr/bin/env bash
# Twenty updates of gmc in bfloat16 on a 0.5B-parameter Qwen3 with random weights, made on the spot: tokens per second,
# peak memory, and the learner's FLOP/s over the card's measured matmul rate. At most 8 minutes on one GPU.
# `bench/gpu.sh --tiny` goes the same way with a tiny model, on a CPU where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD" TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
exec timeout 480 "${PYTHON:-python3}" bench/gpu.py "$@"
