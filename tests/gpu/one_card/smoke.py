"""Whether each kind of exchange works between ranks of one device, and how long it takes; by torchrun. cpu: Gloo."""

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SIZE = 1024
DEVICE = torch.device("cpu") if "cpu" in sys.argv else torch.device("cuda", 0)
ON_GPU = DEVICE.type == "cuda"


def full(value: float, size: int = SIZE) -> Tensor:
    return torch.full((size,), float(value), device=DEVICE)


def all_reduce() -> bool:
    values = full(RANK + 1)
    dist.all_reduce(values)
    return bool((values == WORLD * (WORLD + 1) / 2).all())


def all_gather() -> bool:
    values = torch.empty(WORLD * SIZE, device=DEVICE)
    dist.all_gather_into_tensor(values, full(RANK))
    return bool((values.view(WORLD, -1)[:, 0] == torch.arange(WORLD, device=DEVICE)).all())


def reduce_scatter() -> bool:
    values = torch.empty(SIZE, device=DEVICE)
    dist.reduce_scatter_tensor(values, torch.arange(WORLD, device=DEVICE).float().repeat_interleave(SIZE))
    return bool((values == RANK * WORLD).all())


def ring(size: int) -> bool:
    values = torch.empty(size, device=DEVICE)
    send = dist.P2POp(dist.isend, full(RANK, size), (RANK + 1) % WORLD)
    for work in dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, values, (RANK - 1) % WORLD)]):
        work.wait()
    return bool((values == (RANK - 1) % WORLD).all())


def split_groups() -> bool:
    groups = [dist.new_group([rank for rank in range(WORLD) if rank % 2 == half]) for half in range(2)]
    values = full(1)
    dist.all_reduce(values, group=groups[RANK % 2])
    return bool((values == len(range(RANK % 2, WORLD, 2))).all())


def replicas() -> bool:
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(DEVICE)
    wrapped = nn.parallel.DistributedDataParallel(model, device_ids=[0] if ON_GPU else None)
    wrapped(full(RANK + 1, 8)[None]).sum().backward()
    gradient = model.weight.grad
    return gradient is not None and torch.allclose(gradient, torch.full_like(gradient, (WORLD + 1) / 2))


def shards() -> bool:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    mesh = init_device_mesh(DEVICE.type, (WORLD,))
    for unit in (*model, model):
        fully_shard(unit, mesh=mesh)
    model.to(DEVICE)(full(RANK + 1, 8)[None]).sum().backward()
    return bool(torch.isfinite(model[0].weight.grad.full_tensor()).all())


def check(name: str, exchange: Callable[[], bool]) -> bool:
    began = time.perf_counter()
    try:
        outcome = "ok" if exchange() else "WRONG"
    except Exception as error:
        outcome = f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"
    if RANK == 0:
        print(f"{name:24s} {outcome:8s} {1000 * (time.perf_counter() - began):8.1f} ms", flush=True)
    return outcome == "ok"


def main() -> int:
    if ON_GPU:
        torch.cuda.set_device(DEVICE)
    known = {"device_id": DEVICE} if ON_GPU else {}
    dist.init_process_group("nccl" if ON_GPU else "gloo", timeout=timedelta(seconds=30), **known)
    if RANK == 0:
        nccl = ".".join(map(str, torch.cuda.nccl.version())) if ON_GPU else "none"
        print(f"torch {torch.__version__}, NCCL {nccl}, {WORLD} ranks", flush=True)
    exchanges = {
        "all_reduce": all_reduce,
        "all_reduce again": all_reduce,
        "all_gather": all_gather,
        "reduce_scatter": reduce_scatter,
        "ring of 4 KiB": lambda: ring(SIZE),
        "ring of 64 MiB": lambda: ring(16 << 20),
        "split groups": split_groups,
        "DistributedDataParallel": replicas,
        "fully_shard": shards,
    }
    outcomes = [check(name, exchange) for name, exchange in exchanges.items()]
    dist.destroy_process_group()
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
