"""Models of published measurements as data: their weights, and how computing is divided over them."""

from manyheads.runner.answers.scale.simulator.step import Unit

FP32 = 4
BACKWARD = 2 / 3  # of the time of both passes: two products for each of the forward pass


def resnet50() -> tuple[Unit, ...]:
    """By group of blocks: parameters in millions, and multiplications of a 224-pixel image in 10^9.

    Source: He et al. 2016, table 1, counted layer by layer.
    """
    stages = ((0.0095, 0.118), (0.216, 0.667), (1.220, 1.029), (7.098, 1.466), (14.965, 0.808), (2.049, 0.002))
    computed = sum(work for _, work in stages)
    return tuple(Unit(FP32 * 1e6 * millions, work / computed) for millions, work in stages)


def transformer(
    *, layers: int, hidden: int, vocabulary: int, tokens: int, predicted: float = 1.0, number: int = 4
) -> tuple[Unit, ...]:
    """Blocks of equal size between an embedding and a head that shares its weights with it.

    ``tokens``: of a micro-batch; ``predicted``: the fraction of them for which the head computes; ``number``: bytes of
    one in activations.
    """
    block = 12 * hidden * hidden
    head = vocabulary * hidden * predicted
    computed = layers * block + head
    activations = float(number * tokens * hidden)
    return (
        Unit(FP32 * float(vocabulary * hidden), 0.0, activations),
        *(Unit(FP32 * float(block), block / computed, activations) for _ in range(layers)),
        Unit(0.0, head / computed),
    )


def stages(parameters: list[float], work: list[float]) -> tuple[Unit, ...]:
    """Consecutive stages of a model: millions of parameters, and any measure of their computing."""
    whole = sum(work)
    return tuple(Unit(FP32 * 1e6 * millions, each / whole) for millions, each in zip(parameters, work, strict=True))


def llama(*, layers: int, hidden: int, block: float, vocabulary: int, tokens: int) -> tuple[Unit, ...]:
    """Blocks of so many parameters between an embedding and a head with weights of its own; activations in bf16."""
    head = float(vocabulary * hidden)
    computed = layers * block + head
    activations = 2.0 * tokens * hidden
    return (
        Unit(FP32 * head, 0.0, 0.0),
        *(Unit(FP32 * block, block / computed, activations) for _ in range(layers)),
        Unit(FP32 * head, head / computed, 0.0),
    )
