#!/usr/bin/env bash
# scripts/gpu_bench.sh OUT - how fast training is on this card, in its memory and offloaded, beside plain
# PyTorch and the card's measured peaks. docs/bench.md says how it is used; --help lists options.
#
# It works for 9 minutes at most, and goes on with what is left when it is called again. OUT/bench.json has
# all results. Exit code 0: all is done; 1: something failed; 75: parts are left; 3: no GPU, or no programs.
set -euo pipefail
exec python3 "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/gpu/bench.py" "$@"
