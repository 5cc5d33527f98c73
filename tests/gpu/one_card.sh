#!/usr/bin/env bash
# tests/gpu/one_card.sh [--rehearse] [d1|d2|both]: several ranks on one GPU (d1, five and a half minutes), speed (d2, five).
# Logs and runs are in $OUT, else outputs/one_card. --rehearse: both on CPUs, with tiny sizes, over Gloo, to their ends.
# What the machine lacks is in build/one_card, by tests/gpu/prepare.sh. Ends with 1 if a check failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
rehearse="" part=both
for word in "$@"; do
    case $word in
        --rehearse) rehearse=--rehearse ;;
        d1 | d2 | both) part=$word ;;
        *) echo "error: $word is not allowed. Allowed: --rehearse, d1, d2, both." >&2; exit 2 ;;
    esac
done
python=${PYTHON:-python3} carried=$PWD/build/one_card
out=${OUT:-$PWD/outputs/one_card}
mkdir -p "$out"
work=$(mktemp -d)  # runs: many files, which need not be kept
trap 'rm -rf "$work"' EXIT
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD/.names:$PWD${PYTHONPATH:+:$PYTHONPATH} MANYHEADS_STATE=$work/state
unset MANYHEADS_RANKS_PER_GPU
mkdir -m 700 "$work/state"

if [ -z "$rehearse" ]; then
    "$python" -c "import torch; raise SystemExit(not torch.cuda.is_available())" ||
        { echo "error: there is no GPU. --rehearse runs on CPUs." >&2; exit 2; }
    if ls "$carried"/*.whl > /dev/null 2>&1; then
        "$python" -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$carried"/*.whl || exit 2
        export PYTHONPATH=$PYTHONPATH:$work/site
    fi
fi

# The most ranks between which every exchange works; 0 if none.
working_ranks() {
    for ranks in 4 2; do
        timeout 90 "$python" -m torch.distributed.run --nproc-per-node "$ranks" -m tests.gpu.one_card.smoke "$@" \
            > "$out/smoke_$ranks.log" 2>&1 && { echo "$ranks"; return; }
    done
    echo 0
}

d1() (
    if [ -n "$rehearse" ]; then
        ranks=$(working_ranks cpu) backend=gloo
        [ "$ranks" = 4 ] || { cat "$out"/smoke_*.log; exit 1; }
    else
        if [ -f "$carried/nccl.z" ]; then
            "$python" -c "import sys, zlib; sys.stdout.buffer.write(zlib.decompress(open('$carried/nccl.z', 'rb').read()))" \
                > "$work/libnccl.so.2" || exit 2
            export LD_PRELOAD=$work/libnccl.so.2
        fi
        export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=4 NCCL_NVLS_ENABLE=0
        ranks=$(working_ranks) backend=nccl
        if [ "$ranks" = 0 ]; then
            ranks=4 backend=gloo
            unset LD_PRELOAD
        fi
        export MANYHEADS_RANKS_PER_GPU=$ranks
    fi
    cat "$out"/smoke_*.log
    "$python" -m tests.gpu.one_card.correctness "$work/d1" --ranks "$ranks" --backend "$backend" $rehearse \
        2>&1 | tee "$out/d1.log"
)

d2() {
    "$python" -m tests.gpu.one_card.speed "$work/d2" $rehearse 2>&1 | tee "$out/d2.log"
}

code=0
[ "$part" = d2 ] || d1 || code=1
[ "$part" = d1 ] || d2 || code=1
(cd "$work" && find d1 d2 -name "*.log" -print0 2> /dev/null | tar -czf "$out/logs.tar.gz" --null -T - 2> /dev/null)
exit $code
