#!/usr/bin/env bash
# scripts/bundle.sh FOLDER - the CUDA build as one folder, for machines with a GPU where nothing can be built.
#
# It holds the programs of the preset `cuda` that use the device - sluice, tests and benches, as far as they
# are built in build/cuda - and the libraries that they need beyond glibc, LibTorch and CUDA. It runs on x86-64 Linux with
# glibc 2.36 or later beside a PyTorch 2.11 for CUDA 13:
#
#   FOLDER/run sluice train run.yaml      the program; FOLDER/run alone lists all of them
#   FOLDER/gpu_check.sh OUT               is it right on that card, and how fast is it there?
#   FOLDER/gpu_bench.sh OUT               (docs/bench.md)
#   SLUICE_TORCH=/where/torch/is          where `python3` does not know its PyTorch
#
# Exit code 3: something is missing, or the folder would not run there.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/cuda
limit_mib=60
glibc=2.36

say() { echo "bundle: $*" >&2; }
refuse() {
  say "$@"
  exit 3
}

(($# == 1)) || refuse "usage: scripts/bundle.sh FOLDER"
[[ ! -e $1 ]] || refuse "$1 is there already; it is made anew each time, so remove it first"
[[ -e $build/build.ninja ]] ||
  refuse "no build in build/cuda: scripts/install.sh build cuda; cmake --preset cuda; cmake --build --preset cuda"
mkdir -p "$(dirname "$1")"
work=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/bin" "$work/lib"

# What this build links with CUDA, as far as it is there. What does not is the same program everywhere; left
# out too is what is about drives, files and signals or the host backend, and says nothing of a GPU.
programs() {
  local target
  ninja -C "$build" -t targets all | sed -nE 's/^([^:]+): CXX_EXECUTABLE_LINKER.*/\1/p' |
    grep -vE '/(checkpoint|forecast|models|update|(bench_leaves|faults|first_touch|first_values|long_context|loss_scale|pace|profile|stop|watchdog)_test)$' |
    while read -r target; do
      if readelf -d "$build/$target" 2>/dev/null | grep -qE 'NEEDED.*lib(cudart|torch_cuda)'; then
        echo "$build/$target"
      fi
    done
}

# PATH of every library that the given files need, by themselves or through each other.
resolved() { ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u; }

# Where the needed libraries are, but for those of glibc, LibTorch and CUDA, and what only these need: all
# that is there already.
libraries() {
  local there='^(libc|libm|libdl|librt|libpthread|ld-linux-x86-64|libgomp|libtorch.*|libc10.*|libcu.*)[.]so'
  local direct
  mapfile -t direct < <(resolved "$work"/bin/* |
    grep -E "/($(readelf -d "$work"/bin/* | sed -nE 's/.*NEEDED.*\[(.*)\]/\1/p' | sort -u |
      grep -vE "$there" | paste -sd'|'))\$")
  { printf '%s\n' "${direct[@]}" && resolved "${direct[@]}"; } | sort -u | grep -vE "/${there#^}"
}

mapfile -t found < <(programs)
((${#found[@]} > 0)) || refuse "nothing is built in build/cuda: cmake --build --preset cuda"
for program in "${found[@]}"; do
  strip --strip-all -o "$work/bin/$(basename "$program")" "$program"
done
mapfile -t needed < <(libraries)
for library in "${needed[@]}"; do
  strip --strip-unneeded -o "$work/lib/$(basename "$library")" "$(readlink -f "$library")"
done

# The folders of the machine that built it mean nothing elsewhere.
for program in "$work"/bin/*; do
  echo "file(RPATH_REMOVE FILE \"$program\")"
done >"$work/unpath.cmake"
cmake -P "$work/unpath.cmake" >/dev/null 2>&1
rm "$work/unpath.cmake"

cp "$root/scripts/bundle_run" "$work/run"
cp -r "$root/configs" "$root/LICENSE" "$root"/scripts/gpu_{check,bench}.sh "$work/"
mkdir "$work/gpu"
cp "$root"/scripts/gpu/*.py "$work/gpu/"
git -C "$root" describe --always --dirty >"$work/commit"

newest=$(objdump -T "$work"/bin/* "$work"/lib/* | grep -oE 'GLIBC_[0-9.]+' | cut -d_ -f2 | sort -uV | tail -1)
[[ $(printf '%s\n' "$newest" "$glibc" | sort -V | tail -1) == "$glibc" ]] ||
  refuse "it would need glibc $newest; build it where glibc is $glibc or older"
size=$(du -sm --apparent-size "$work" | cut -f1)
((size <= limit_mib)) || refuse "it would have $size MiB, at most $limit_mib are meant: $(du -m "$work"/* | sort -rn | head -3)"
mv "$work" "$1"
trap - EXIT
say "$1: ${#found[@]} programs, $size MiB, glibc $newest or later"
