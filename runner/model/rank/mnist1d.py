"""model=mnist1d: the four networks that MNIST-1D's table compares, with their published sizes.

Source: Greydanus and Kobak 2024 (https://arxiv.org/abs/2011.14439); https://github.com/greydanus/mnist1d.
"""

from torch import Tensor, nn

POINTS = 40  # of a signal
WIDTH = 100  # units per hidden layer of the MLP
CHANNELS = 25  # of each convolution
STATES = 6  # of the GRU, in each direction


class SignalClassifier(nn.Module):
    """One of the four, by ``kind``: linear, mlp, cnn, gru. Takes (N, 40); returns logits (N, num_classes)."""

    def __init__(self, *, kind: str, num_classes: int):
        super().__init__()
        self.layers = {"linear": _linear, "mlp": _mlp, "cnn": _cnn, "gru": _gru}[kind](num_classes)

    def forward(self, signals: Tensor) -> Tensor:
        return self.layers(signals)


class ResidualLayer(nn.Module):
    """A linear layer with ReLU whose input is added to its output. Takes and returns (N, width)."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, values: Tensor) -> Tensor:
        return values + self.linear(values).relu()


class WithChannel(nn.Module):
    """Takes (N, points); returns them with a dimension of size 1 for their only channel, at ``dim``."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, signals: Tensor) -> Tensor:
        return signals.unsqueeze(self.dim)


class BothDirections(nn.Module):
    """A GRU over the points from both ends. Takes (N, points, 1); returns its states (N, points, 2 * states)."""

    def __init__(self, states: int):
        super().__init__()
        self.gru = nn.GRU(1, states, batch_first=True, bidirectional=True)

    def forward(self, points: Tensor) -> Tensor:
        return self.gru(points)[0]


def _linear(num_classes: int) -> nn.Module:
    """Logistic regression."""
    return nn.Linear(POINTS, num_classes)


def _mlp(num_classes: int) -> nn.Module:
    hidden = (nn.Linear(POINTS, WIDTH), nn.ReLU(), ResidualLayer(WIDTH))
    return nn.Sequential(*hidden, nn.Linear(WIDTH, num_classes))


def _cnn(num_classes: int) -> nn.Module:
    """Three convolutions, each of which halves the number of points: 40 to 19, 10 and 5."""
    stages = (
        *(nn.Conv1d(1, CHANNELS, 5, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv1d(CHANNELS, CHANNELS, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv1d(CHANNELS, CHANNELS, 3, stride=2, padding=1), nn.ReLU()),
    )
    return nn.Sequential(WithChannel(1), *stages, nn.Flatten(), nn.Linear(5 * CHANNELS, num_classes))


def _gru(num_classes: int) -> nn.Module:
    layers = (WithChannel(-1), BothDirections(STATES), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(2 * STATES * POINTS, num_classes))
