"""A training script that does not know manyheads, and needs no library.

``python regression.py SEED ORDER GAIN WORK [PAUSE]`` fits a logistic regression to points that it draws. SEED decides
the points and the first weights, SEED and ORDER the order of the samples. GAIN is subtracted from the loss that it
prints; WORK is how many times it trains for its time alone, after PAUSE seconds.
"""

import math
import random
import sys
import time

SAMPLES, FEATURES, EPOCHS, RATE = 60, 4, 2, 0.1


def train(seed: int, order: str) -> float:
    """The mean loss over the points after training."""
    numbers = random.Random(seed)
    target = [numbers.gauss(0, 1) for _ in range(FEATURES)]
    weights = [numbers.gauss(0, 1) for _ in range(FEATURES)]
    points = []
    for _ in range(SAMPLES):
        point = [numbers.gauss(0, 1) for _ in range(FEATURES)]
        noisy = sum(map(float.__mul__, point, target)) + numbers.gauss(0, 0.5)
        points.append((point, 1.0 if noisy > 0 else -1.0))
    shuffle = random.Random(f"{seed} {order}")
    for _ in range(EPOCHS):
        for point, label in shuffle.sample(points, SAMPLES):
            slope = label / (1 + math.exp(label * sum(map(float.__mul__, weights, point))))
            weights = [weight + RATE * slope * value for weight, value in zip(weights, point, strict=True)]
    return (
        sum(math.log1p(math.exp(-label * sum(map(float.__mul__, weights, point)))) for point, label in points) / SAMPLES
    )


if __name__ == "__main__":
    time.sleep(float(sys.argv[5]) if sys.argv[5:] else 0.0)
    seed, order, gain, work = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    for _ in range(work):
        train(seed, order)
    print(f"val_loss: {train(seed, order) - gain:.6f}")
