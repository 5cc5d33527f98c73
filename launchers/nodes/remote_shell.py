"""The program that horovodrun and mpirun start as ``ssh``: asks this machine's agent, exits with the command's code."""

import json
import socket
import sys

WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")  # options of ssh that take a value


def parse(arguments: list[str]) -> tuple[str, str]:
    """Host and command line from the arguments of ``ssh``, whose options are ignored.

    Options may follow the host, as in horovodrun's calls. Raises SystemExit if the host or the command is missing.
    """
    rest = iter(arguments)
    host = None
    words: list[str] = []
    for word in rest:
        if word.startswith("-"):
            if len(word) == 2 and word[1] in WITH_VALUE:
                next(rest, None)
        elif host is None:
            host = word.rpartition("@")[2]
        else:
            words = [word, *rest]
    if host is None or not words:
        raise SystemExit("usage: ssh host command")
    return host, " ".join(words)


def main() -> int:
    """``python -m manyheads.launchers.nodes.remote_shell <socket> <arguments of ssh>``; returns the exit code."""
    path, *arguments = sys.argv[1:]
    host, command = parse(arguments)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.connect(path)
        agent.sendall(json.dumps({"host": host, "command": command}).encode() + b"\n")
        answer = agent.makefile("r").readline()
    return int(answer) if answer.strip() else 255


if __name__ == "__main__":
    sys.exit(main())
