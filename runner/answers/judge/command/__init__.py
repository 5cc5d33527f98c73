"""Judgements of commands: what is compared is two commands, or one command in two trees of files."""
