#!/usr/bin/env bash
# tests/gpu/prepare.sh [NAME==VERSION ...]: what one_card.sh needs on a machine with a GPU and torch but without network.
# Below 60 MiB, in build/one_card: NCCL of this environment for sm_90 alone, Apex's Python files, and wheels, by default
# those that images for GPUs often lack. For that machine's Python: $TARGET_PYTHON (3.12). $APEX: a clone of
# https://github.com/NVIDIA/apex with tag 25.05, the last with amp and DistributedDataParallel; else it is cloned.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3} folder=build/one_card wanted=${TARGET_PYTHON:-3.12} most=60
installed() { "$python" -c "import importlib.metadata as m; print('$1==' + m.version('$1'))"; }
mkdir -p "$folder"
rm -f "$folder"/*

nccl=$("$python" -c "import nvidia.nccl as n; print(next(iter(n.__path__)) + '/lib/libnccl.so.2')")
PYTHONPATH=$PWD "$python" -m tests.gpu.one_card.slim_nccl "$nccl" "$folder/nccl.z"

apex=${APEX:-}
if [ -z "$apex" ]; then
    apex=$(mktemp -d)
    trap 'rm -rf "$apex"' EXIT
    git clone -q --depth 1 --branch 25.05 https://github.com/NVIDIA/apex "$apex"
fi
git -C "$apex" archive --format=tar.gz -o "$PWD/$folder/apex.tar.gz" 25.05 apex

"$python" -m pip wheel -q --no-deps -w "$folder" "$(installed antlr4-python3-runtime)"  # has no wheel of its own
if [ $# = 0 ]; then
    names="hydra-core omegaconf setproctitle nvidia-ml-py simplejpeg google-crc32c platformdirs psutil rich tensorboard"
    for name in $names; do set -- "$@" "$(installed "$name")"; done
fi
platforms=()
for version in 2_28 2_27 2_24 2_17; do platforms+=(--platform "manylinux_${version}_x86_64"); done
platforms+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
for each in "$@"; do
    "$python" -m pip download -q --no-deps --only-binary=:all: --python-version "$wanted" --implementation cp \
        "${platforms[@]}" -d "$folder" "$each"
done
size=$(du -sm "$folder" | cut -f1)
ls -l "$folder"
[ "$size" -lt $most ] || { echo "error: $folder has $size MiB, and should have less than $most" >&2; exit 1; }
echo "$folder: $size MiB"
