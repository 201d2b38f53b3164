# SPDX-License-Identifier: GPL-3.0-or-later
"""An SVG picture: what the README's pictures (docs/pictures/draw) and those of ./bench --plot share. Colours follow the reader's
light or dark scheme. <title> and <desc> are the text alternative."""
from xml.sax.saxutils import escape

WIDTH = 820

STYLE = """
    text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328 }
    .head { font-weight: 600 }
    .small { font-size: 12px }
    .faint { fill: #59636e }
    .end { text-anchor: end }
    .mid { text-anchor: middle }
    .code { font: 12px ui-monospace, "DejaVu Sans Mono", monospace }
    .plain { fill: #afb8c1 } .plain2 { fill: #c8d1da }
    .good { fill: #0969da } .good2 { fill: #54aeff }
    .bad { fill: #bc4c00 }
    .box { fill: #f6f8fa; stroke: #8c959f }
    .ours { fill: #ddf4ff; stroke: #0969da }
    .line { stroke: #59636e; stroke-width: 1.5; fill: none }
    .grid { stroke: #d1d9e0 }
    .tip { fill: #59636e }
    .mark { fill: #1f2328 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .faint { fill: #9198a1 }
      .plain { fill: #656c76 } .plain2 { fill: #7d8590 }
      .good { fill: #4493f8 } .good2 { fill: #1f6feb }
      .bad { fill: #f0883e }
      .box { fill: #151b23; stroke: #656c76 }
      .ours { fill: #0c2d6b; stroke: #4493f8 }
      .line { stroke: #9198a1 }
      .grid { stroke: #3d444d }
      .tip { fill: #9198a1 }
      .mark { fill: #e6edf3 }
    }"""


class Picture:
    def __init__(self, title, style=""):
        """style: rules after those that all pictures have."""
        self.title, self.style, self.parts = title, STYLE + style, []

    def rect(self, x, y, w, h, kind, radius=0):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" class="{kind}"'
                          + (f' rx="{radius}"' if radius else "") + "/>")

    def text(self, x, y, words, kind=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"' + (f' class="{kind}"' if kind else "") + f">{escape(words)}</text>")

    def path(self, steps, kind="line"):
        self.parts.append(f'<path d="{steps}" class="{kind}"/>')

    def arrow(self, *points):
        """Along the points, with a tip at the last."""
        (x0, y0), (x, y) = points[-2:]
        ux, uy = (x > x0) - (x < x0), (y > y0) - (y < y0)
        stop = (x - 6 * ux, y - 6 * uy)
        self.path("M" + " L".join(f"{a:.1f},{b:.1f}" for a, b in [*points[:-1], stop]))
        self.path(f"M{x:.1f},{y:.1f} L{x - 8 * ux - 4 * uy:.1f},{y - 8 * uy - 4 * ux:.1f} "
                  f"L{x - 8 * ux + 4 * uy:.1f},{y - 8 * uy + 4 * ux:.1f} Z", "tip")

    def svg(self, height, says):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
                f'role="img" aria-labelledby="title desc">\n  <title id="title">{escape(self.title)}</title>\n'
                f'  <desc id="desc">{escape(says)}</desc>\n  <style>{self.style}\n  </style>\n  '
                + "\n  ".join(self.parts) + "\n</svg>\n")


def giga(n):
    return f"{n / 1e9:.2f} GB"
