"""Which format a path is of: the one reader of all graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from apps.graphs.formats.npz import read_npz
from apps.graphs.formats.objects import read_adjlist, read_graphml, read_mat, read_pyg
from apps.graphs.formats.ogb import read_ogb
from apps.graphs.formats.planetoid import read_planetoid
from apps.graphs.formats.tables import Columns, Table, read_tables
from apps.graphs.raw import POLICIES, Raw
from scadl_core.errors import ConfigError, DataError, nearest
from scadl_core.files import Paths, find_files, reading

TABLES = (".csv", ".tsv", ".txt", ".edgelist", ".edges", ".cites", ".parquet", ".pq", ".gz")
SINGLE: dict[str, Callable[[Path], Raw]] = {
    ".npz": read_npz,
    ".graphml": read_graphml,
    ".mat": read_mat,
    ".adjlist": read_adjlist,
    ".pt": read_pyg,
    ".pth": read_pyg,
}
SUFFIXES = (*TABLES, *SINGLE)
NODE_WORDS = ("node", "vert", "feature", "content", "attr")  # in names of node tables
EDGE_WORDS = ("edge", "link", "cites")


def read(
    paths: Paths,
    columns: Columns = Columns(),  # noqa: B008  # a tuple
    weight: str | None = "auto",
    unknown: str = "error",
    key: str = "data.path",
    place: Callable[[Sequence[Path]], Path | None] = lambda files: None,
) -> Raw:
    """Reads the graph that some files hold, whatever their format.

    Args:
        paths: A file, a folder, a pattern, or several: of one graph.
        columns: Chosen columns of tables.
        weight: Edge weights: ``auto``, a column, or None.
        unknown: ``error`` or ``drop``, for edges to ids that no node has.
        key: What the paths were written for, to name in messages.
        place: Of files that can be read in pieces: where columns of numbers of the nodes lie as
            files; None: in memory.

    Raises:
        ConfigError: An unknown policy.
        DataError: Files that are missing, broken, of no known format, or of several graphs.
    """
    if unknown not in POLICIES:
        raise ConfigError(f"data.unknown: got {unknown!r}{nearest(unknown, POLICIES)}")
    several = [paths] if isinstance(paths, str | Path) else paths
    with reading(", ".join(map(str, several))):
        return _read(paths, columns, weight, unknown, key, place)


def _read(
    paths: Paths,
    columns: Columns,
    weight: str | None,
    unknown: str,
    key: str,
    place: Callable[[Sequence[Path]], Path | None],
) -> Raw:
    if isinstance(paths, str | Path) and (Path(paths).expanduser() / "raw").is_dir():
        return read_ogb(Path(paths).expanduser(), place)
    planetoid = _planetoid(paths)
    if planetoid:
        return read_planetoid(planetoid)
    files = find_files(paths, SUFFIXES, key=key)
    single = [it for it in files if it.suffix.lower() in SINGLE]
    if single:
        if len(files) > 1:
            raise _several(files, key)
        return SINGLE[single[0].suffix.lower()](single[0])
    for file in files:
        if file.suffix.lower() not in TABLES:
            known = ", ".join(SUFFIXES)
            raise DataError(f"{file}: of a graph, files ending in {known}, or ind.* are read")
    return _read_tables(files, columns, weight, unknown, key, place)


def _planetoid(paths: Paths) -> Path | None:
    """The first file of a Planetoid graph among some paths."""
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    first = Path(several[0]).expanduser()
    found = sorted(first.glob("ind.*.graph")) if first.is_dir() else [first]
    if len(found) > 1:
        raise _several(found, "data.path")
    return found[0] if found and found[0].name.startswith("ind.") else None


def _several(files: Sequence[Path], key: str) -> DataError:
    names = ", ".join(file.name for file in files[:5])
    return DataError(f"{key}: {len(files)} files ({names}) are several graphs; name one of them")


def _read_tables(
    files: Sequence[Path],
    columns: Columns,
    weight: str | None,
    unknown: str,
    key: str,
    place: Callable[[Sequence[Path]], Path | None],
) -> Raw:
    tables = [Table(file) for file in files]
    edges = [it for it in tables if not _named(it, NODE_WORDS) and it.ends(columns)]
    nodes = [it for it in tables if _named(it, NODE_WORDS) and not _named(it, EDGE_WORDS)]
    if len(edges) > 1 and not all(_named(it, EDGE_WORDS) for it in edges):
        marked = [it for it in edges if _named(it, EDGE_WORDS)]
        if not marked:
            raise _several([it.path for it in edges], key)
        edges = marked
    if not edges:
        has = "; ".join(f"{it.path.name} has {', '.join(it.names[:6])}" for it in tables[:3])
        raise DataError(
            f"{tables[0].path}: no list of edges: {has}. Two columns source and target are needed, "
            "or data.columns={source: .., target: ..}"
        )
    if len(nodes) > 1:
        raise _several([it.path for it in nodes], key)
    of_nodes = nodes[0] if nodes else None
    raw = read_tables(edges, of_nodes, columns, weight, unknown, place(files))
    rest = [it.path.name for it in tables if it not in (*edges, *nodes)]
    raw.notes += [f"not used: {', '.join(rest)}"] * bool(rest)
    return raw


def _named(table: Table, words: Sequence[str]) -> bool:
    return any(word in table.path.stem.lower() for word in words)
