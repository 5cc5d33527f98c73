"""Declarations of task=language_model."""

from manyheads.runner.task.task_option import TaskOption


class LanguageModelOption(TaskOption):
    """The loss of a token, and perplexity."""

    measures = ("loss", "perplexity")
