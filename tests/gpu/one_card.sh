#!/usr/bin/env bash
# tests/gpu/one_card.sh [--rehearse] [--minutes N] [d1|d2|both]: several ranks on one GPU (d1, five and a half minutes),
# speed (d2, five). Logs are in $OUT, else outputs/one_card. What would begin after these minutes, or N, drops out.
# --rehearse: both on CPUs, with tiny sizes, over Gloo, to their ends.
# What the machine lacks is in build/one_card, by tests/gpu/prepare.sh. Ends with 1 if a check failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
usage() { echo "error: $1 is not allowed. Allowed: --rehearse, --minutes N, d1, d2, both." >&2; exit 2; }
rehearse="" part=both minutes=""
while [ $# -gt 0 ]; do
    case $1 in
        --rehearse) rehearse=--rehearse ;;
        --minutes) shift; minutes=${1:-}; [[ $minutes =~ ^[0-9]+$ ]] || usage "--minutes $minutes" ;;
        d1 | d2 | both) part=$1 ;;
        *) usage "$1" ;;
    esac
    shift
done
python=${PYTHON:-python3} carried=$PWD/build/one_card
out=${OUT:-$PWD/outputs/one_card}
mkdir -p "$out"
work=$(mktemp -d)  # runs: many files, which need not be kept
trap 'rm -rf "$work"' EXIT
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD/.names:$PWD${PYTHONPATH:+:$PYTHONPATH} MANYHEADS_STATE=$work/state
export TORCHINDUCTOR_CACHE_DIR=$work/inductor  # what is compiled for one loop is compiled for the others
unset MANYHEADS_RANKS_PER_GPU
mkdir -m 700 "$work/state"

patience=45  # s for all exchanges
if [ -n "$rehearse" ]; then
    patience=900
    export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE  # threads that spin for each other would fill a busy machine
else
    "$python" -c "import torch; raise SystemExit(not torch.cuda.is_available())" ||
        { echo "error: there is no GPU. --rehearse runs on CPUs." >&2; exit 2; }
    mkdir "$work/site"
    if ls "$carried"/*.whl > /dev/null 2>&1; then
        "$python" -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$carried"/*.whl || exit 2
    fi
    if [ -f "$carried/apex.tar.gz" ]; then tar -xzf "$carried/apex.tar.gz" -C "$work/site" || exit 2; fi
    export PYTHONPATH=$PYTHONPATH:$work/site
fi

# The most ranks between which every exchange works; 0 if none. The first word names the logs.
working_ranks() {
    for ranks in 4 2; do
        timeout -k 5 "$patience" "$python" -m torch.distributed.run --nproc-per-node "$ranks" -m tests.gpu.one_card.smoke $2 \
            > "$out/smoke_$1_$ranks.log" 2>&1 && { echo "$ranks"; return; }
    done
    echo 0
}

# Sets ranks, backend and way: NCCL, else NCCL under MPS, else Gloo.
choose_way() {
    if [ -n "$rehearse" ]; then
        ranks=$(working_ranks gloo cpu) backend=gloo way="Gloo, in a rehearsal"
        return
    fi
    if [ -f "$carried/nccl.z" ]; then
        "$python" -c "import sys, zlib; sys.stdout.buffer.write(zlib.decompress(open('$carried/nccl.z', 'rb').read()))" \
            > "$work/libnccl.so.2" || exit 2
        export LD_PRELOAD=$work/libnccl.so.2
    fi
    export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=4 NCCL_NVLS_ENABLE=0
    ranks=$(working_ranks nccl "") backend=nccl way="NCCL"
    [ "$ranks" = 0 ] || return
    way="NCCL failed"
    if command -v nvidia-cuda-mps-control > /dev/null; then
        export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
        mkdir "$work/mps"
        trap 'echo quit | nvidia-cuda-mps-control > /dev/null' EXIT  # of this subshell
        nvidia-cuda-mps-control -d && ranks=$(working_ranks mps "")
        if [ "$ranks" != 0 ]; then way="NCCL under MPS; without it NCCL failed"; return; fi
        echo quit | nvidia-cuda-mps-control > /dev/null
        trap - EXIT
        unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
        way="$way, also under MPS"
    else
        way="$way; there is no MPS"
    fi
    ranks=4 backend=gloo way="$way: see smoke_*.log; Gloo instead"
    unset LD_PRELOAD
}

# Arguments that limit a part to the minutes, or to as many seconds as are given.
limit() { [ -n "$rehearse" ] || echo "--seconds $((${minutes:+60 * }${minutes:-$1} - SECONDS))"; }

d1() (
    SECONDS=0
    choose_way
    cat "$out"/smoke_*.log
    [ "$ranks" != 0 ] || exit 1
    [ -n "$rehearse" ] || export MANYHEADS_RANKS_PER_GPU=$ranks
    "$python" -m tests.gpu.one_card.correctness "$work/d1" --ranks "$ranks" --backend "$backend" --way "$way" \
        $(limit 330) $rehearse 2>&1 | tee "$out/d1.log"
)

d2() (
    SECONDS=0
    "$python" -m tests.gpu.one_card.speed "$work/d2" $(limit 300) $rehearse 2>&1 | tee "$out/d2.log"
)

code=0
[ "$part" = d2 ] || d1 || code=1
[ "$part" = d1 ] || d2 || code=1
(cd "$work" && find d1 d2 -name "*.log" -print0 2> /dev/null | tar -czf "$out/logs.tar.gz" --null -T - 2> /dev/null)
exit $code
