"""One file for each command of ``python -m runner``: HELP, add_arguments, run."""

A_RUN = "its folder, such as outputs/2026-01-31/12-00-00"
