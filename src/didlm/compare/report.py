"""One page that holds everything: tables, plots and what was asked, with nothing to load."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

from didlm.compare.tables import Table
from didlm.display.pieces import printable

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
  color: #222; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left } th { vertical-align: bottom }
.wide { overflow-x: auto } .plots { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)) }
figure { margin: 0 } img { width: 100% } figcaption { font-weight: 600; font-size: 13px }
code { background: #f3f3f3; padding: .1rem .3rem } blockquote { margin: .4rem 0 1rem; color: #444 }
"""


def page(
    command: str,
    facts: Mapping[str, str],
    tables: Sequence[Table],
    pictures: Mapping[str, bytes],
    examples: Mapping[str, str],
    notes: Sequence[str],
) -> str:
    """The page as HTML.

    Args:
        command: that made it.
        facts: what it was made with, by name.
        tables: of figures.
        pictures: PNGs by their titles.
        examples: a text of each model.
        notes: how to read it.
    """
    plots = "".join(
        f'<figure><figcaption>{escape(title)}</figcaption><img alt="{escape(title)}" '
        f'src="data:image/png;base64,{base64.b64encode(png).decode()}"></figure>'
        for title, png in pictures.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>A comparison of models</title><style>{STYLE}</style>"
        "<h1>A comparison of models</h1>"
        f"<p><code>{escape(command)}</code></p>"
        + "<p>" + "; ".join(f"{escape(k)}: {escape(v)}" for k, v in facts.items()) + "</p>"
        + "".join(map(_table, tables))
        + "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"
        + f'<h2>Plots</h2><div class="plots">{plots}</div><h2>A text of each</h2>'
        + "".join(
            f"<h3>{escape(name)}</h3><blockquote>{escape(printable(text))}</blockquote>"
            for name, text in examples.items()
        )
        + "</html>\n"
    )  # fmt: skip


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in table.headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f'<h2>{escape(table.title)}</h2><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
