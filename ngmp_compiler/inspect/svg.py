"""The alphabet of a drawing: colours, texts and shapes of SVG, notes below the panels, and the document around them."""

import re
from xml.sax.saxutils import escape

from .diagram import steady
from .layout import LEADING, Box, text_width

MARGIN, HEAD = 28.0, 90.0
INK, SOFT, LINE, FRAME, PAPER = "#1d2733", "#5b6776", "#7b8794", "#b8c2cc", "#f6f8fa"
PROJECTED, TINT = "#c2570c", "#fff1e3"
COMPONENTS = ("#d5e6f7", "#d9efd9", "#e9def5", "#f8e3ea", "#f7eecb", "#d3eeec")
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"


def clean(words: str) -> str:
    """Without what XML cannot hold."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", words)


def circle(x: float, y: float, radius: float, fill: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{INK}" stroke-width="1.5"/>'


def diamond(x: float, y: float, half: float) -> str:
    path = f"M{x - half:.1f},{y:.1f} l{half},{half} {half},{-half} {-half},{-half} z"
    return f'<path d="{path}" fill="white" stroke="{INK}" stroke-width="1.5"/>'


def text(x: float, y: float, words: str, colour: str = INK, size: float = 12.0, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}" font-size="{size:g}"{more}>{escape(clean(words))}</text>'


def size(box: Box) -> str:
    x, y, right, bottom = box
    return f'x="{x:.1f}" y="{y:.1f}" width="{right - x:.1f}" height="{bottom - y:.1f}"'


def rect(box: Box, fill: str, stroke: str, radius: float = 0.0, more: str = "") -> str:
    return f'<rect {size(box)} rx="{radius:g}" fill="{fill}" stroke="{stroke}" stroke-width="1.5"{more}/>'


def wrap(words: str, width: float) -> list[str]:
    lines = [""]
    for word in words.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], longer] if text_width(steady(longer)) <= width else [*lines, word]
    return [line for line in lines if line]


def notes(rows: list[tuple[str, str, tuple[str, ...]]], x: float, y: float, width: float) -> tuple[str, float]:
    """A list of icons (drawn about the origin), each with a heading and paragraphs; and where it ends."""
    out = []
    for icon, heading, paragraphs in rows:
        head, body = wrap(heading, width - 40.0), [line for p in paragraphs for line in wrap(p, width - 20.0)]
        words = ""
        for i, line in enumerate([*head, *body]):
            bold = body and i < len(head)
            words += text(20, 4 + LEADING * i, line, INK if bold else SOFT, more=' font-weight="600"' if bold else "")
        out.append(f'<g class="note" transform="translate({x + 8:.0f} {y:.0f})">{icon}{words}</g>')
        y += LEADING * (len(head) + len(body) - 1) + (24.0 if body else 22.0)
    return "\n".join(out), y


def document(name: str, width: float, height: float, panels: str) -> str:
    view = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    out = f"""<svg xmlns="http://www.w3.org/2000/svg" {view} font-family="{FONT}">
<title>{escape(clean(name))}</title>
<defs><marker id="ngmp-arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0,1 L10,5 L0,9 z" fill="{LINE}"/></marker></defs>
<rect width="100%" height="100%" fill="white"/>
{text(MARGIN, 40, name, INK, 20, ' font-weight="700"')}
<path d="M{width / 2:.0f},60 V{height - 24:.0f}" stroke="{FRAME}"/>
{panels}
</svg>
"""
    return out.encode("ascii", "xmlcharrefreplace").decode()
