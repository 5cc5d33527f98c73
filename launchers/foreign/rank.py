"""A program that answers requests by torch's store, for a rank that has not yet imported torch."""

import json
import signal
import sys
from datetime import timedelta

from torch.distributed import TCPStore


def main() -> None:
    """Answer requests until there are no more, or until the store cannot be reached.

    Arguments: address, port, whether to host the store (0 or 1), seconds. Each line of its input is a request, [key] or
    [key, value] in JSON, each line of its output the answer: the value, or null. It ends with its input.
    """
    address, port, hosts, seconds = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the rank, which may still need the store
        signal.signal(number, signal.SIG_IGN)
    limit = timedelta(seconds=float(seconds))
    try:
        store = TCPStore(address, int(port), is_master=hosts == "1", wait_for_workers=False, timeout=limit)
        print("{}", flush=True)
        for line in sys.stdin:
            key, *value = json.loads(line)
            if value:
                store.set(key, value[0])
            text = store.get(key).decode() if not value and store.check([key]) else None
            print(json.dumps(text), flush=True)
    except Exception as error:
        print(json.dumps({"error": str(error).splitlines()[0]}), flush=True)


if __name__ == "__main__":
    main()
