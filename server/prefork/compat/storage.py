"""`seldon_core.Storage`: model files that are on this machine already."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit


class Storage:
    """Finds the files of a model. Remote ones are an init container's business."""

    @staticmethod
    def download(uri: str, out_dir: str | None = None) -> str:
        """The local path of a path or `file://` address; with `out_dir`, links to its files are put there.

        Raises RuntimeError when there is no such file, and for every other scheme.
        """
        source = _local(uri)
        if not source.exists():
            raise RuntimeError(f"Storage.download: {str(source)!r} does not exist")
        if out_dir is None:
            return str(source)
        return str(_linked(source, Path(out_dir)))


def _local(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in uri:
        raise RuntimeError(
            f"Storage.download: {uri!r} is not local; mount it or fetch it in an init container, and give the path"
        )
    return Path(uri)


def _linked(source: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()) if source.is_dir() else [source]:
        link = folder / file.name
        if not link.exists():
            link.symlink_to(file.resolve())
    return folder
