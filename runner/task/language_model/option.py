"""What task=language_model declares."""

from manyheads.runner.task.option import TaskOption


class LanguageModelOption(TaskOption):
    """The loss of a token, and perplexity."""

    measures = ("loss", "perplexity")
