"""A store in an object store, through fsspec, with a cache of slices on the machine that reads them.

An object is there whole once it is put, and lasts. What the commit rests on is the conditional put, which
fsspec offers for any file system but only some carry out as one operation; the known ones are listed.
Credentials and endpoints come from the environment, as for every other program that uses the object
store: they are never part of a query or a checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa

from midstream.errors import CheckpointError, OptionError, StreamError
from midstream.storage.local import LocalStore
from midstream.storage.slices import FOLDER as SLICES
from midstream.storage.store import parts_of

PROTOCOLS = {"s3": "s3", "s3a": "s3"}
"""Schemes of addresses whose conditional put is one operation, and what fsspec calls them."""

_CACHE_BYTES = 8 << 30
"""What the cache of one checkpoint may hold on a machine; the oldest slices leave first."""

_sound: set[str] = set()
"""Cached slices that this process has written, or compared with their digest."""


@dataclass(frozen=True)
class RemoteStore:
    """Objects below ``url``. Only slices are cached: their names are digests, so they never change."""

    url: str
    cache_bytes: int = _CACHE_BYTES

    def put(self, name: str, data: pa.Buffer | bytes) -> None:
        """Put the object, and keep a copy of a slice: the next epoch will read it."""
        _connect(self.url).pipe_file(self._path(name), _bytes(data))
        self._keep(name, data)

    def sync(self, folder: str) -> None:
        """What is put lasts."""

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        """Put the object on the condition that there is none.

        If the answer to a put was lost and the put repeated, this says False for one's own object. That is
        safe: the driver stops, and its next start finds what it has written.
        """
        try:
            _connect(self.url).pipe_file(self._path(name), _bytes(data), mode="create")
        except FileExistsError:
            return False
        return True

    def read(self, name: str) -> pa.Buffer:
        """A slice from the cache if it is there; else the object."""
        if self._caches(name) and (kept := self._kept(name)) is not None:
            return kept
        try:
            data = pa.py_buffer(_connect(self.url).cat_file(self._path(name)))
        except FileNotFoundError:
            raise CheckpointError(
                "a file that the checkpoint needs must be there",
                got=f"no {name} in {self.url}",
                hint="restore it, or start a new query with another checkpointLocation",
            ) from None
        self._keep(name, data)
        return data

    def list(self, folder: str) -> list[str]:
        """The objects right below a folder."""
        path = self._path(folder)
        try:
            found = _connect(self.url).ls(path, detail=False)
        except FileNotFoundError:
            return []
        return sorted(f"{folder}/{name.rpartition('/')[2]}" for name in found if name != path)

    def delete(self, name: str) -> None:
        """Remove the object, and the copy on this machine."""
        with contextlib.suppress(FileNotFoundError):
            _connect(self.url).rm_file(self._path(name))
        if self._caches(name):
            self._cache().delete(name)

    def _path(self, name: str) -> str:
        return "/".join((self.url.partition("://")[2], *parts_of(name)))

    def _caches(self, name: str) -> bool:
        return self.cache_bytes > 0 and name.startswith(f"{SLICES}/")

    def _cache(self) -> LocalStore:
        return LocalStore(str(_cache_folder(self.url)))

    def _kept(self, name: str) -> pa.Buffer | None:
        """The copy of a slice on this machine; if it is not what it was, it is given up."""
        try:
            data = self._cache().read(name)
        except CheckpointError:
            return None  # it was never read here, or has left
        if name not in _sound and name != f"{SLICES}/{hashlib.sha256(data).hexdigest()}.arrow":
            self._cache().delete(name)
            return None
        _sound.add(name)
        return data

    def _keep(self, name: str, data: pa.Buffer | bytes) -> None:
        """Copy a slice into the cache. A full disk is no reason to fail: the object is safe."""
        if not self._caches(name):
            return
        try:
            self._cache().put(name, data)
            _sound.add(name)
            self._shrink()
        except (OSError, StreamError):
            self._cache().delete(name)

    def _shrink(self) -> None:
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


def store_at(location: str, *, cached: bool = True) -> LocalStore | RemoteStore:
    """The store at a location; without the cache, what is read is what the object store has."""
    if not is_remote(location):
        return LocalStore(location)
    store = RemoteStore(location.rstrip("/"), _CACHE_BYTES if cached else 0)
    _connect(store.url)
    return store


def _connect(url: str) -> Any:
    """The file system of an address; fsspec keeps one per process."""
    try:
        import fsspec  # noqa: PLC0415  # an extra: only those who use it need to have it

        # Listings must show what other drivers have just written.
        return fsspec.filesystem(PROTOCOLS[urlparse(url).scheme], use_listings_cache=False)
    except ImportError as error:
        raise OptionError(
            "a checkpointLocation on S3 needs s3fs",
            got=str(error),
            hint="pip install 'midstream[s3]', on all machines of the cluster",
        ) from None


@cache
def _cache_folder(url: str) -> Path:
    """The cache of a store on this machine: a folder of this user's that nobody else can write to."""
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
