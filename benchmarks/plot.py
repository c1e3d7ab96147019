"""docs/performance.svg: CPU a request of each server as a multiple of the floor, a panel a size."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks import cpu
from benchmarks.wires import SHAPES

FILE = Path(__file__).parents[1] / "docs" / "performance.svg"
WIDTH, LABELS, FIGURES = 760, 250, 130
ROW, PANEL = 24, 46
STYLE = "text{font:13px sans-serif;fill:#222}.head{font-weight:bold}.ours{fill:#2a78b8}.other{fill:#b9c0c7}.floor{fill:#7d8790}"


def write(results: dict[tuple[str, str], cpu.Result]) -> None:
    """Draw what was measured over JSON bodies in Seldon's form."""
    names = [cpu.FLOOR, cpu.INLINE, cpu.THREAD, cpu.SYNC, cpu.FLASK, cpu.SELDON]
    sizes = [size for size in SHAPES if (cpu.FLOOR, size) in results]
    parts, top = [], 8
    for size in sizes:
        rows = [(name, results[name, size]) for name in names if (name, size) in results]
        parts += [_panel(size, rows, top)]
        top += PANEL + ROW * len(rows)
    FILE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" role="img">\n'
        f"<title>CPU microseconds of all server processes a request; shorter is better</title>\n<style>{STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{top}" fill="#fff"/>\n{"".join(parts)}</svg>\n',
        encoding="utf-8",
    )


def _panel(size: str, rows: list[tuple[str, cpu.Result]], top: int) -> str:
    most = max(result.ratio for _, result in rows)
    shape = " x ".join(map(str, SHAPES[size]))
    parts = [f'<text class="head" x="8" y="{top + 20}">{size}, {shape}: CPU a request, shorter is better</text>\n']
    for index, (name, result) in enumerate(rows):
        y = top + 30 + ROW * index
        kind = "floor" if name == cpu.FLOOR else "ours" if name.startswith("Prefork") else "other"
        width = max(1, round((WIDTH - LABELS - FIGURES) * result.ratio / most))
        parts.append(
            f'<text x="{LABELS - 10}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{width}" height="{ROW - 6}"/>'
            f'<text x="{LABELS + width + 6}" y="{y + 14}">{result.cpu:,.0f} us, {result.ratio:.2f} x</text>\n'
        )
    return "".join(parts)
