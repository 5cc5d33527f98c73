"""Objects below an address, read and written by obstore, with retries for a limited time.

obstore takes server, region and credentials from the user's environment. It verifies no checksums of ranges, so readers
do. Its error messages may name the server; those of this module do not.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import IO, Any, TypeVar

from manyheads.runner.run.objects import Address, MissingObject, StorageError

AT_ONCE = 2**24  # bytes of an object that are asked for in one request
CONNECTING = 5.0  # seconds that a connection may take
ATTEMPTS = 4  # requests that may time out within the time for retries
LEAST_SECONDS = 2.0
MOST_PAUSE = 5.0
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_STATUS = re.compile(r"status:? (?:code )?(\d{3})")
_HINTS = {
    "401": "credentials are missing or wrong",
    "403": "your credentials do not allow it",
    "301": "the bucket is in another region: set AWS_REGION",
}
_Result = TypeVar("_Result")


class Bucket:
    """The objects below ``address``. ``retry_for``: seconds for which a failing request is retried."""

    def __init__(self, address: Address, *, retry_for: float):
        from obstore.store import from_url

        self.address, self.retry_for = address, retry_for
        endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
        options: dict[str, Any] = {
            "timeout": timedelta(seconds=max(retry_for / ATTEMPTS, LEAST_SECONDS)),
            "connect_timeout": timedelta(seconds=CONNECTING),
            "allow_http": endpoint.startswith("http://"),
        }
        pauses = {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=MOST_PAUSE), "base": 2}
        retry = {"max_retries": 10**6, "retry_timeout": timedelta(seconds=retry_for), "backoff": pauses}
        try:
            build: Any = from_url  # whose arguments differ by kind of storage
            self._store = build(address.text, client_options=options, retry_config=retry, **_login(address.text))
        except Exception as error:  # whatever the library raises for settings in the environment
            raise StorageError(f"its settings in your environment are not sound ({type(error).__name__})") from None

    def list(self, below: str) -> Iterator[tuple[str, int, str]]:
        """Name, size and tag of all objects below a name, or of all; a tag changes with the content.

        Raises StorageError.
        """
        import obstore

        metas = self._until_it_works(lambda: [one for part in obstore.list(self._store, below or None) for one in part])
        for meta in metas:
            yield meta["path"], meta["size"], meta["e_tag"] or str(meta["last_modified"])

    def size(self, name: str) -> int:
        """The size of an object in bytes. Raises StorageError."""
        import obstore

        return int(self._until_it_works(lambda: obstore.head(self._store, name))["size"])

    def read(self, name: str, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from ``start`` to ``stop``, in parts. Raises StorageError."""
        for first in range(start, stop, AT_ONCE):
            yield self._part(name, first, min(first + AT_ONCE, stop))

    def write(self, name: str, file: IO[bytes]) -> None:
        """Store a file under this name. Raises StorageError."""
        import obstore

        def put() -> None:
            file.seek(0)
            obstore.put(self._store, name, file)

        self._until_it_works(put)

    def remove(self, name: str) -> None:
        """Remove an object; does nothing if there is none. Raises StorageError."""
        import obstore

        with suppress(MissingObject):
            self._until_it_works(lambda: obstore.delete(self._store, name))

    def _part(self, name: str, start: int, stop: int) -> bytes:
        import obstore

        def get() -> bytes:
            content = bytes(obstore.get_range(self._store, name, start=start, end=stop))
            if len(content) != stop - start:
                raise _CutError(f"bytes {start} to {stop} came as {len(content)} bytes")
            return content

        return self._until_it_works(get)

    def _until_it_works(self, ask: Callable[[], _Result]) -> _Result:
        """Call ``ask`` until it succeeds. Raises StorageError if no retry helps, or after ``retry_for`` seconds."""
        deadline, pause = time.monotonic() + self.retry_for, 0.1
        while True:
            try:
                return ask()
            except Exception as error:  # the library has its own for each kind of server
                failed = _failure(error)
                if failed is not None or time.monotonic() + pause > deadline:
                    raise failed or StorageError(f"{_words(error)}, for {self.retry_for:g} seconds") from None
            time.sleep(pause)
            pause = min(2 * pause, MOST_PAUSE)


class _CutError(Exception):
    """An answer shorter or longer than the requested range."""


def _failure(error: Exception) -> StorageError | None:
    """The error for a failure that no retry helps; None for any other."""
    if isinstance(error, FileNotFoundError):
        return MissingObject("there is no such object")
    status = (_STATUS.search(str(error)) or ("", ""))[1]
    name = type(error).__name__
    if name in ("PermissionDeniedError", "UnauthenticatedError") or status in _HINTS:
        fallback = "403" if name == "PermissionDeniedError" else "401"
        return StorageError(_HINTS.get(status, _HINTS[fallback]))
    if status.startswith("4") and status not in ("408", "429"):
        return StorageError(f"the server refuses it, with status {status}")
    return None


def _words(error: Exception) -> str:
    """An error in words that name no server."""
    text = str(error)
    if isinstance(error, _CutError):
        return text
    if match := _STATUS.search(text):
        return f"the server answers with status {match[1]}"
    if re.search(r"(?<!retry_)time(d )?out", text, re.IGNORECASE):
        return "the server does not answer in time"
    if re.search(r"body|decod|incomplete|end of file", text, re.IGNORECASE):
        return "answers are cut off"
    return "the server cannot be reached"


def _login(address: str) -> dict[str, Any]:
    """Settings for credentials of a profile, which boto3 reads as the AWS CLI does; none for those in variables."""
    if not address.startswith("s3://") or "AWS_ACCESS_KEY_ID" in os.environ or not os.environ.get("AWS_PROFILE"):
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise StorageError("AWS_PROFILE needs boto3: pip install boto3") from None
    return {"credential_provider": Boto3CredentialProvider()}
