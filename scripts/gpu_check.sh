#!/usr/bin/env bash
# scripts/gpu_check.sh OUT - whether the CUDA build is right on this card: its tests, the crown test over
# placements, a small run under compute-sanitizer. docs/bench.md says how it is used; --help lists options.
#
# It works for 9 minutes at most, and goes on with what is left when it is called again. OUT/check.json has
# all results. Exit code 0: all is ok; 1: something failed; 75: parts are left; 3: no GPU, or no programs.
set -euo pipefail
exec python3 "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/gpu/check.py" "$@"
