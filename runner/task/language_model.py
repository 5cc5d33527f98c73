"""What task=language_model declares."""

from manyheads.runner.task.task_option import TaskOption


class LanguageModelOption(TaskOption):
    """The loss of a token, and perplexity."""

    measures = ("loss", "perplexity")
