"""A store in an object store, through fsspec, with a cache of slices on the machine that reads them.

An object is complete and durable once it is put. Commits depend on the conditional put, which fsspec offers
for any file system but which is atomic only in some; those that are known to be are listed.
Credentials and endpoints come from the environment, as for every other program that uses the object
store: they are never part of a query or a checkpoint.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa

from midstream.errors import CheckpointError, MidstreamError, OptionError, StreamError
from midstream.storage.local import LocalStore
from midstream.storage.slice_files import FOLDER as SLICES
from midstream.storage.slice_files import digest_in
from midstream.storage.store import parts_of

PROTOCOLS = {"s3": "s3", "s3a": "s3"}
"""Schemes of addresses whose conditional put is atomic, and the names that fsspec has for them."""

_CACHE_BYTES = 8 << 30
"""What the cache of one checkpoint may hold on a machine; the oldest slices are evicted first."""

_EXISTS_CODES = ("PreconditionFailed", "412")
"""The codes by which servers refuse a conditional put; s3fs knows only some of their answers."""

_HINT = (
    "look whether it can be reached and what it allows, then start the query again: it goes on after its "
    "last committed epoch"
)

_verified: set[str] = set()
"""Cached slices that this process has written, or compared with their digest."""


@dataclass(frozen=True)
class RemoteStore:
    """Objects below ``url``. Only slices are cached: their names are digests, so they never change."""

    url: str
    cache_bytes: int = _CACHE_BYTES

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Put the object, and keep a copy of a slice: the next epoch will read it."""
        self.put_all({name: data})

    def put_all(self, files: Mapping[str, pa.Buffer | bytes]) -> None:
        """Put several objects at once, and keep copies of slices."""
        with _object_store(self.url) as objects:
            objects.pipe({self._path(name): _bytes(data) for name, data in files.items()})
        self._add_to_cache(files)

    def sync(self, folder: str) -> None:
        """Nothing: an object is durable once it is put."""

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        """Put the object on the condition that there is none.

        If the response to a put was lost and the put repeated, this returns False for the caller's own
        object. Callers to whom that matters compare the content.
        """
        try:
            with _object_store(self.url) as objects:
                objects.pipe_file(self._path(name), _bytes(data), mode="create")
        except FileExistsError:
            return False
        return True

    def read(self, name: str, *, sparsely: bool = False) -> pa.Buffer:
        """A slice from the cache if it has it; else the object."""
        if self._caches(name) and (cached := self._cached(name, sparsely=sparsely)) is not None:
            return cached
        try:
            with _object_store(self.url) as objects:
                data = pa.py_buffer(objects.cat_file(self._path(name)))
        except FileNotFoundError:
            raise CheckpointError(
                "a file that the checkpoint needs must be there",
                got=f"no {name} in {self.url}",
                hint="restore it, or start a new query with another checkpointLocation",
            ) from None
        self._add_to_cache({name: data})
        return data

    def list(self, folder: str) -> list[str]:
        """The objects right below a folder."""
        path = self._path(folder)
        try:
            with _object_store(self.url) as objects:
                names = objects.ls(path, detail=False)
        except FileNotFoundError:
            return []
        return sorted(f"{folder}/{name.rpartition('/')[2]}" for name in names if name != path)

    def delete(self, name: str) -> None:
        """Remove the object, and the copy on this machine."""
        with contextlib.suppress(FileNotFoundError), _object_store(self.url) as objects:
            objects.rm_file(self._path(name))
        if self._caches(name):
            self._cache().delete(name)

    def _path(self, name: str) -> str:
        return "/".join((self.url.partition("://")[2], *parts_of(name)))

    def _caches(self, name: str) -> bool:
        return self.cache_bytes > 0 and name.startswith(f"{SLICES}/")

    def _cache(self) -> LocalStore:
        return LocalStore(str(_cache_folder(self.url)))

    def _cached(self, name: str, *, sparsely: bool) -> pa.Buffer | None:
        """The copy of a slice on this machine; a damaged one is deleted."""
        try:
            data = self._cache().read(name, sparsely=sparsely and name in _verified)
        except CheckpointError:
            return None  # it was never read here, or was evicted
        if name not in _verified and digest_in(name) != hashlib.sha256(data).hexdigest():
            self._cache().delete(name)
            return None
        _verified.add(name)
        return data

    def _add_to_cache(self, files: Mapping[str, pa.Buffer | bytes]) -> None:
        """Copy slices into the cache. A full disk is no reason to fail: the objects are safe."""
        slices = {name: data for name, data in files.items() if self._caches(name)}
        if not slices:
            return
        try:
            self._cache().put_all(slices)
            _verified.update(slices)
            self._evict()
        except (OSError, StreamError):
            for name in slices:
                self._cache().delete(name)

    def _evict(self) -> None:
        files = [(p, p.stat()) for p in Path(self._cache().root, SLICES).iterdir()]
        excess = sum(stat.st_size for _, stat in files) - self.cache_bytes
        for path, stat in sorted(files, key=lambda file: file[1].st_mtime_ns):
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= stat.st_size


def is_remote(location: str) -> bool:
    """Whether a location is an address of an object store rather than a folder."""
    return urlparse(location).scheme in PROTOCOLS


def names_at(location: str) -> list[str]:
    """The names at the top of a location, sorted; none if there is nothing."""
    if not is_remote(location):
        folder = Path(location)
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    path = location.rstrip("/").partition("://")[2]
    try:
        with _object_store(location) as objects:
            names = objects.ls(path, detail=False)
    except FileNotFoundError:
        return []
    return sorted(name.rpartition("/")[2] for name in names if name.rstrip("/") != path)


def store_at(location: str, *, cached: bool = True) -> LocalStore | RemoteStore:
    """The store at a location; unless ``cached``, everything is read from the object store itself."""
    if not is_remote(location):
        return LocalStore(location)
    store = RemoteStore(location.rstrip("/"), _CACHE_BYTES if cached else 0)
    _connect(store.url)
    return store


def _connect(url: str) -> Any:
    """The file system of an address; fsspec has one per process."""
    try:
        import fsspec  # noqa: PLC0415  # an extra: only those who use it need to have it

        # Listings must show what other drivers have just written.
        return fsspec.filesystem(PROTOCOLS[urlparse(url).scheme], use_listings_cache=False)
    except ImportError as error:
        raise OptionError(
            "the packages for a checkpointLocation on S3 must be installed",
            got=str(error),
            hint="pip install 'midstream[s3]', on all machines of the cluster",
        ) from None


@contextlib.contextmanager
def _object_store(url: str) -> Iterator[Any]:
    """The file system of an address; any error of a request to it is raised as an OSError.

    s3fs translates the errors of servers, but not those of the libraries below it when no server answers.
    Callers could not tell these from bugs, and the thread that keeps the lease would end. They are not raised
    as errors of Midstream, which end the query: Spark should try such a task again.
    """
    objects = _connect(url)
    try:
        yield objects
    except (FileNotFoundError, FileExistsError, MidstreamError):
        raise
    except Exception as error:
        if _code_of(error) in _EXISTS_CODES:
            raise FileExistsError(errno.EEXIST, "the object exists") from error
        kind = PermissionError if isinstance(error, PermissionError) else OSError
        number = getattr(error, "errno", None) or errno.EIO
        what = f"the object store at {url} must do what it is asked; got {_one_line(error)}"
        raise kind(number, f"{what}. Hint: {_HINT}") from error


def _one_line(error: Exception) -> str:
    """What an error says, without the class of the library that raised it, which says nothing to a user."""
    return " ".join(str(error).split()) or "no answer"


def _code_of(error: BaseException) -> str | None:
    """The error code in a server's response, if there is one."""
    response = getattr(error.__cause__, "response", None) or {}
    code = response.get("Error", {}).get("Code")
    return None if code is None else str(code)


@cache
def _cache_folder(url: str) -> Path:
    """The cache of a store on this machine: a folder that only this user can write to."""
    user = os.getuid()
    folder = Path(tempfile.gettempdir(), f"midstream-cache-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != user or status.st_mode & 0o077 or folder.is_symlink():
        raise CheckpointError(
            "the folder that slices are cached in must belong to this user alone",
            got=str(folder),
            hint="remove it, or set TMPDIR to another folder",
        )
    return folder / hashlib.sha256(url.encode()).hexdigest()[:16]


def _bytes(data: pa.Buffer | bytes) -> bytes:
    return data if isinstance(data, bytes) else memoryview(data).tobytes()
