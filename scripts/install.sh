#!/usr/bin/env bash
# scripts/install.sh build|bench|cuda|data|lint|reference|transformers|peers|peers-deepspeed|fio ... - installs what is missing, and nothing that is there.
#
#   build      the compiler and libraries (apt), and LibTorch into .deps/libtorch
#   bench      what `./sluice bench` needs of that (apt): a minute instead of several
#   cuda       what a build with SLUICE_GPU=cuda needs beside `build`: the CUDA 13.0 compiler and LibTorch's
#              CUDA libraries, in .deps/cuda (pip, 650 MB; it needs no GPU and no driver)
#   data       what `./sluice data tokenize` and `./sluice data inspect` need, in .deps/data (pip, 470 MB)
#   lint       the tools of scripts/lint and .ci/run (apt)
#   reference  PyTorch for tests/reference (apt; the product does not need it)
#   transformers  Hugging Face transformers for tests/reference, in .deps/transformers (pip, 6 GB with
#              PyTorch; the product does not need it)
#   peers      PyTorch as users have it, for bench/e2e, in .deps/peers (pip, 5 GB; the product does not need it)
#   peers-deepspeed  DeepSpeed into the same place, with its ops, for bench/e2e/vs_deepspeed
#   fio        what `sluice bench nvme --compare-fio` and bench/nvme/beside_fio compare with (apt)
#
# Debian 12 or Ubuntu 24.04, as root or with passwordless sudo; without either it prints the command
# for an administrator. Exit code 3: this machine lacks something that cannot be installed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
libtorch=$root/.deps/libtorch
cuda=$root/.deps/cuda
requirements=$root/scripts/libtorch-requirements.txt
cuda_requirements=$root/scripts/cuda-requirements.txt

# Of every room without LibTorch: CMake looks for all of it, also where only a part is built.
bench_packages=(
  g++ cmake ninja-build pkg-config
  liburing-dev libaio-dev libnuma-dev libxxhash-dev libtbb-dev libxsimd-dev libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev
  nlohmann-json3-dev
)
build_packages=(
  "${bench_packages[@]}"
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
  python3 python3-pip python3-venv unzip
)
# One version everywhere: clang-format formats differently from release to release, and clang-tidy
# knows std::source_location from 15 on.
lint_packages=(clang-format-14 clang-tidy-16 shellcheck ccache)
reference_packages=(python3-torch python3-numpy)

say() { echo "sluice: $*" >&2; }
refuse() {
  say "$@"
  exit 3
}

missing_of() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      echo "$package"
  done
}

install_packages() {
  command -v apt-get dpkg-query >/dev/null ||
    refuse "no apt-get here; sluice installs itself on Debian 12 and Ubuntu 24.04. It needs: $*"
  local missing
  mapfile -t missing < <(missing_of "$@")
  if ((${#missing[@]} == 0)); then return; fi

  local as_root=()
  if ((EUID != 0)); then
    as_root=(sudo -n)
    if ! sudo -n true 2>/dev/null; then
      say "missing packages, and neither root nor passwordless sudo to install them."
      say "An administrator runs this once; then start sluice again:"
      echo "apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 3
    fi
  fi
  say "installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q
    -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update >&2 || say "apt-get update failed; trying with the package lists that are here"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >&2 ||
    refuse "apt-get could not install: ${missing[*]}. Its reason stands above; nothing else was touched"
}

# download_wheels FOLDER REQUIREMENTS...: for one fixed Python, since only their C++ side is used.
download_wheels() {
  local folder=$1
  shift
  /usr/bin/python3 -m pip download --disable-pip-version-check --no-cache-dir --no-input \
    --require-hashes --no-deps --only-binary=:all: "${@/#/--requirement=}" \
    --python-version 3.11 --implementation cp --abi cp311 --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_25_x86_64 --platform manylinux2014_x86_64 --dest "$folder" >&2
}

# Everything is made ready beside its place and then renamed: an interrupted install leaves nothing
# that looks complete.
install_libtorch() {
  cmp -s "$requirements" "$libtorch/requirements.txt" && return
  [[ $(uname -m) == x86_64 ]] ||
    refuse "LibTorch is pinned for x86_64, this machine is $(uname -m); build with -DSLUICE_LIBTORCH=FOLDER"

  local parent
  parent=$(dirname "$libtorch")
  mkdir -p "$parent"
  work=$(mktemp -d "$parent/libtorch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "downloading LibTorch (550 MB, once)"
  download_wheels "$work/wheels" "$requirements" ||
    refuse "LibTorch could not be downloaded; pip's reason stands above. Needs 1.2 GB in $parent"
  unzip -q "$work"/wheels/torch-*.whl 'torch/include/*' torch/lib/libtorch_cpu.so \
    torch/lib/libc10.so torch/lib/libgomp.so.1 'torch-*.dist-info/licenses/*' -d "$work/new"
  unzip -q "$work"/wheels/nvidia_cuda_runtime-*.whl nvidia/cu13/lib/libcudart.so.13 \
    '*.dist-info/licenses/*' -d "$work/new"
  unzip -q "$work"/wheels/nvidia_cuda_cupti-*.whl nvidia/cu13/lib/libcupti.so.13 \
    '*.dist-info/licenses/*' -d "$work/new"
  cp "$requirements" "$work/new/requirements.txt"
  if [[ -e $libtorch ]]; then mv "$libtorch" "$work/old"; fi
  mv "$work/new" "$libtorch"
  rm -rf "$work"
  trap - EXIT
}

# The toolkit as its own wheels lay it out, which is also where LibTorch's CUDA libraries look for the
# runtime. What those need besides (cuBLAS, cuDNN, NCCL, ...) is on machines with a GPU only.
install_cuda() {
  cat "$requirements" "$cuda_requirements" | cmp -s - "$cuda/requirements.txt" && return
  [[ $(uname -m) == x86_64 ]] ||
    refuse "the CUDA compiler is pinned for x86_64, this machine is $(uname -m); put an nvcc of CUDA 13 on PATH"

  mkdir -p "$root/.deps"
  work=$(mktemp -d "$cuda.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "downloading the CUDA compiler and LibTorch's CUDA libraries (640 MB, once)"
  download_wheels "$work/wheels" "$requirements" "$cuda_requirements" ||
    refuse "they could not be downloaded; pip's reason stands above. They need 1.5 GB in $root/.deps"
  unzip -q "$work"/wheels/torch-*.whl torch/lib/libtorch_cuda.so torch/lib/libc10_cuda.so \
    'torch-*.dist-info/licenses/*' -d "$work/new"
  local wheel
  for wheel in "$work"/wheels/nvidia_{cuda_{nvcc,crt,cccl,runtime},nvvm}-*.whl; do
    unzip -q "$wheel" 'nvidia/cu13/*' '*.dist-info/licenses/*' -d "$work/new"
  done
  rm "$work/new/nvidia/cu13/lib/libnvvm.so.4" # for programs that compile at run time
  ln -s lib "$work/new/nvidia/cu13/lib64" # the name under which nvcc looks for it
  cat "$requirements" "$cuda_requirements" >"$work/new/requirements.txt"
  if [[ -e $cuda ]]; then mv "$cuda" "$work/old"; fi
  mv "$work/new" "$cuda"
  rm -rf "$work"
  trap - EXIT
}

# install_python NAME SIZE: what scripts/NAME-requirements.txt pins, into .deps/NAME with a Python of its
# own. Only its `bin/python` is used: that still works after the folder is renamed, its scripts do not.
install_python() {
  local pinned=$root/scripts/$1-requirements.txt folder=$root/.deps/$1
  cmp -s "$pinned" "$folder/requirements.txt" && return
  mkdir -p "$root/.deps"
  work=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "downloading the Python packages of scripts/$1-requirements.txt ($2 in .deps/$1, once)"
  { /usr/bin/python3 -m venv "$work/new" &&
    "$work/new/bin/python" -m pip install --disable-pip-version-check --no-cache-dir --no-input --quiet \
      --requirement "$pinned" >&2; } ||
    refuse "they could not be installed; the reason stands above. They need $2 in $root/.deps"
  cp "$pinned" "$work/new/requirements.txt"
  if [[ -e $folder ]]; then mv "$folder" "$work/old"; fi
  mv "$work/new" "$folder"
  rm -rf "$work"
  trap - EXIT
}

# Its setup.py asks the PyTorch and the setuptools that are there. The ops are built now: a build that is
# interrupted leaves a lock behind, on which the next one waits for ever.
install_deepspeed() {
  local pinned=$root/scripts/peers-deepspeed-requirements.txt peers=$root/.deps/peers
  cmp -s "$pinned" "$peers/deepspeed-requirements.txt" && return
  say "installing DeepSpeed into .deps/peers, and building its ops (some minutes, once)"
  rm -rf "$peers/extensions"
  local op='import sys; from deepspeed.accelerator import get_accelerator as a
for name in sys.argv[1:]: a().create_op_builder(name).load(verbose=False)'
  { DS_ACCELERATOR=cpu "$peers/bin/python" -m pip install --disable-pip-version-check --no-cache-dir --no-input \
    --quiet --no-build-isolation --requirement "$pinned" >&2 &&
    DS_ACCELERATOR=cpu TORCH_EXTENSIONS_DIR=$peers/extensions PATH=$peers/bin:$PATH "$peers/bin/python" \
      -c "$op" CPUAdamBuilder AsyncIOBuilder ShareMemCommBuilder >&2; } ||
    refuse "DeepSpeed could not be installed; the reason stands above. bench/e2e/vs_pytorch does without"
  cp "$pinned" "$peers/deepspeed-requirements.txt"
}

# note_installed NAME FILE...: .deps/NAME is what ./sluice compares at each start, so that it asks
# neither apt nor pip.
note_installed() {
  local name=$1
  shift
  mkdir -p "$root/.deps"
  (cd "$root" && sha256sum scripts/install.sh "$@" /etc/os-release >".deps/$name.new" &&
    mv ".deps/$name.new" ".deps/$name")
}

(($# > 0)) || refuse "usage: scripts/install.sh build|bench|cuda|data|lint|reference|transformers|peers|peers-deepspeed|fio ..."
for what in "$@"; do
  case $what in
    build)
      install_packages "${build_packages[@]}"
      install_libtorch
      note_installed installed scripts/libtorch-requirements.txt
      ;;
    bench)
      install_packages "${bench_packages[@]}"
      note_installed installed-bench
      ;;
    cuda)
      install_packages g++ python3 python3-pip unzip
      install_cuda
      ;;
    data)
      install_packages python3 python3-venv
      install_python data "470 MB"
      note_installed installed-data scripts/data-requirements.txt
      ;;
    lint) install_packages "${lint_packages[@]}" ;;
    reference) install_packages "${reference_packages[@]}" ;;
    transformers)
      install_packages python3 python3-venv
      install_python transformers "6 GB"
      ;;
    peers)
      install_packages python3 python3-venv
      install_python peers "5 GB"
      ;;
    peers-deepspeed)
      install_packages g++ libaio-dev python3-dev python3-venv
      install_python peers "5 GB"
      install_deepspeed
      ;;
    fio) install_packages fio ;;
    *) refuse "scripts/install.sh knows build, bench, cuda, data, lint, reference, transformers, peers, peers-deepspeed and fio, not '$what'" ;;
  esac
done
