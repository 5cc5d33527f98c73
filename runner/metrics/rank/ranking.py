"""Metrics of how samples are ranked by their scores for a class: exact, from every sample's scores."""

import numpy as np

from manyheads.runner.metrics.metric import Collected


class AUROC(Collected):
    """Area under the ROC curve of each class against the rest, mean over classes, in percent.

    This is the probability that a sample of the class scores higher than another sample; ties count half. Scores are
    softmax probabilities if a sample has one class.
    """

    version = 2  # 1: ranked by logits

    def __init__(self, name: str = "auroc", *, at_most: float = 1024, **names: str):
        super().__init__(name, at_most=at_most, **{"unit": "%", "label": "AUROC", **names})

    def of_class(self, scores: np.ndarray, is_it: np.ndarray) -> float | None:
        positives = int(is_it.sum())
        negatives = len(is_it) - positives
        if not positives or not negatives:
            return None
        _, index, count = np.unique(scores, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(count) - (count - 1) / 2)[index]  # of equal scores the mean of their ranks
        return 100 * float((ranks[is_it].sum() - positives * (positives + 1) / 2) / (positives * negatives))


class AveragePrecision(Collected):
    """Average precision of each class against the rest, mean over classes, in percent: mAP.

    The sum over thresholds of precision times the increase in recall, without interpolation, as in scikit-learn.
    """

    version = 2  # 1: ranked by logits

    def __init__(self, name: str = "average_precision", *, at_most: float = 1024, **names: str):
        super().__init__(name, at_most=at_most, **{"unit": "%", "label": "mAP", **names})

    def of_class(self, scores: np.ndarray, is_it: np.ndarray) -> float | None:
        positives = int(is_it.sum())
        if not positives:
            return None
        order = np.argsort(-scores, kind="stable")
        ranked, hits = scores[order], np.cumsum(is_it[order])
        last = np.append(ranked[1:] != ranked[:-1], True)  # of equal scores all are above the threshold
        hits, taken = hits[last], np.flatnonzero(last) + 1
        gains = np.diff(hits, prepend=0)
        return 100 * float((hits / taken * gains).sum() / positives)
