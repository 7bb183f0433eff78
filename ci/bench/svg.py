"""Plain pictures: bars beside each other, and lines over a common axis. The same figures give the
same bytes. Readable on light and dark ground, which stays that of the page."""

import math
from xml.sax.saxutils import escape

WIDTH = 760
STYLE = """<style>
text{font:13px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600;font-size:14px}
.note{fill:#59636e;font-size:12px}.axis{stroke:#8c959f;stroke-width:1;opacity:.45}
.ours{fill:#0969da;stroke:#0969da}.stock{fill:#8c959f;stroke:#8c959f}.lua{fill:#bf8700;stroke:#bf8700}
.more{fill:#cf222e;stroke:#cf222e}.line{fill:none;stroke-width:2}.sure{stroke:#1f2328;stroke-width:1.5}
.goal{stroke:#cf222e;stroke-width:1;stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}.sure{stroke:#e6edf3}
.ours{fill:#4493f8;stroke:#4493f8}.lua{fill:#d29922;stroke:#d29922}
.more,.goal{stroke:#f85149}.more{fill:#f85149}}
.line{fill:none}
</style>"""


def kind(name):
    """The colour of a side, by its name."""
    if name.startswith("peerage"):
        return "ours"
    return "lua" if name.startswith("Lua") else "stock"


def number(value):
    """A coordinate."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def rounded(value):
    """The next round number, for the end of an axis."""
    ten = 10 ** math.floor(math.log10(value))
    return next(ten * step for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if ten * step >= value)


class Picture:
    def __init__(self, title):
        self.title, self.parts, self.height = title, [], 30
        self.text(0, 18, title, "head")

    def text(self, x, y, text, look="", end=False):
        anchor = ' text-anchor="end"' if end else ""
        look = f' class="{look}"' if look else ""
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}"{anchor}{look}>{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, look):
        self.parts.append(f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" '
                          f'y2="{number(y2)}" class="{look}"/>')

    def bars(self, rows, left=290, log=None, marks=(), goal=None):
        """Rows of (label, value, text, look) or (…, low, high), or None for a gap; `log` is the
        axis's (from, to) where it is logarithmic."""
        right = WIDTH - 90
        shown = [row for row in rows if row]
        most = log[1] if log else max(row[5] if len(row) > 4 else row[1] for row in shown)

        def at(value):
            if log:
                value = math.log(max(value, log[0]) / log[0]) / math.log(log[1] / log[0])
            else:
                value /= most
            return left + (right - left) * value

        top = self.height
        bottom = top + sum(22 if row else 12 for row in rows)
        for value, label in marks:
            self.line(at(value), top, at(value), bottom, "axis")
            self.text(at(value) - 8, bottom + 15, label, "note")
        for row in rows:
            if not row:
                self.height += 12
                continue
            label, value, text, look = row[:4]
            y, x = self.height, at(value)
            self.text(left - 8, y + 15, label, end=True)
            self.parts.append(f'<rect x="{left}" y="{y + 3}" width="{number(max(1, x - left))}" '
                              f'height="15" rx="2" class="{look}" stroke="none"/>')
            if len(row) > 4:
                self.line(at(row[4]), y + 10.5, at(row[5]), y + 10.5, "sure")
                x = max(x, at(row[5]))
            self.text(x + 6, y + 15, text)
            self.height += 22
        if goal:
            self.line(at(goal), top, at(goal), bottom, "goal")
        self.height = bottom + (22 if marks else 8)

    def lines(self, title, series, unit):
        """One panel: series of (label, look, [values]), over the same steps, from zero."""
        left, right, tall = 60, WIDTH - 20, 150
        most = rounded(max(max(values) for _, _, values in series))
        top = self.height + 30
        self.text(0, self.height + 18, title)
        for step in range(3):
            y = top + tall - tall * step / 2
            self.line(left, y, right, y, "axis")
            self.text(left - 6, y + 4, f"{most * step / 2:,.0f}", "note", end=True)
        for label, look, values in series:
            across = (right - left) / max(1, len(values) - 1)
            points = " ".join(f"{number(left + across * n)},{number(top + tall - tall * value / most)}"
                              for n, value in enumerate(values))
            self.parts.append(f'<polyline points="{points}" class="{look} line"/>')
        self.height = top + tall
        self.text(right, self.height + 16, unit, "note", end=True)
        self.height += 24

    def legend(self, series):
        for label, look in series:
            self.parts.append(f'<rect x="60" y="{self.height + 4}" width="12" height="12" class="{look}"/>')
            self.text(78, self.height + 15, label)
            self.height += 20
        self.height += 6

    def note(self, text):
        self.text(0, self.height + 12, text, "note")
        self.height += 20

    def save(self, path):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {number(self.height + 4)}" '
                f'width="{WIDTH}" role="img">\n<title>{escape(self.title)}</title>\n{STYLE}\n')
        with open(path, "w") as out:
            out.write(head + "\n".join(self.parts) + "\n</svg>\n")
