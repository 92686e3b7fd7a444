"""Pages of reStructuredText from the public headers, for Sphinx' domain of C.

    headers.py FOLDER HEADER...     FOLDER/NAME.rst for each

A comment at the top level is prose. One that stands right above declarations belongs to
them; lines of it that are indented become literal blocks. `/* ---- title ---- */` begins
a section.
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import sys

COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
SECTION = re.compile(r"---- (.*?) ----$")
SKIPPED = re.compile(  # what is no part of the contract
    r"^(?:#(?:ifn?def|if|else|endif|include) .*|#(?:else|endif)"
    r"|#\s*define DANAUS_(?:\w+_H|API.*)|extern \"C\" \{|\}|// SPDX.*)\n", re.M)
DECLARATION = re.compile(r"#define [^\n]*|[^/\s](?:[^;{]|\{[^}]*\})*;(?:[ \t]*/\*.*?\*/)?", re.S)


def words(text):
    """Prose of a comment, with what means something to Sphinx escaped."""
    pieces = re.split(r"`([^`]*)`", text)
    for i in range(0, len(pieces), 2):
        piece = re.sub(r"([\\*|])", r"\\\1", pieces[i])
        piece = re.sub(r"_(?!\w)", r"\\_", piece)
        piece = re.sub(r"\b(danaus_\w+)\(\)", r":c:func:`\1`", piece)
        pieces[i] = re.sub(r"\bdocs/(\w+)\.md", r":doc:`\1 </docs/\1>`", piece)
    for i in range(1, len(pieces), 2):
        pieces[i] = f"``{pieces[i]}``"
    return "".join(pieces)


def prose(comment, indent=""):
    """Lines of a comment: paragraphs, and literal blocks where it is indented."""
    lines = [line.removeprefix("   ").rstrip() for line in comment.strip().split("\n")]
    out, literal = [], False
    for line in lines:
        indented = line.startswith(" ")
        if indented and not literal:
            out += ["", "::", ""]
        elif literal and line and not indented:
            out += [""]
        literal = indented or (literal and not line)
        out.append(("   " + line if indented else words(line)) if line else "")
    return "".join((indent + line).rstrip() + "\n" for line in out) + "\n"


def signature(declaration):
    text = COMMENT.sub("", declaration).replace("DANAUS_API", "")
    return " ".join(text.split()).removesuffix(";").strip()


def code(declaration, indent):
    lines = [".. code-block:: c", "", *("   " + line for line in declaration.split("\n")), ""]
    return "".join((indent + line).rstrip() + "\n" for line in lines)


def directives(declarations, comment):
    """What a group of declarations under one comment becomes."""
    first, text = declarations[0], prose(comment, "   ") if comment else ""
    for kind in ("struct", "enum"):
        if re.match(rf"typedef {kind} \w+ \{{", first):
            name = re.match(rf"typedef {kind} (\w+)", first)[1]
            return (f".. c:{kind}:: {name}\n\n{text}{code(first, '   ')}"
                    + rest(declarations[1:]))
    if first.startswith("#define"):
        name, value = re.match(r"#define (\w+(?:\([^)]*\))?)\s*(.*)", first).groups()
        return (f".. c:macro:: {name}\n\n   ``{COMMENT.sub('', value).strip()}``\n\n{text}"
                + rest(declarations[1:]))
    if first.startswith("typedef"):
        what = signature(first).removeprefix("typedef ")
        what = re.sub(r"^(?:struct|union) (\w+) \1$", r"\1", what)
        return f".. c:type:: {what}\n\n{text}" + rest(declarations[1:])
    some = [d for d in declarations if d.startswith("DANAUS_API")]
    lines = [f".. c:function:: {signature(some[0])}"]
    lines += [f"                {signature(d)}" for d in some[1:]]
    for declaration in some:
        note = COMMENT.search(declaration)
        if note:
            whose = re.search(r"(\w+)\(", declaration)[1] + "(): " if len(some) > 1 else ""
            text += prose(whose + note[1].strip(), "   ")
    others = [d for d in declarations if d not in some]
    return "\n".join(lines) + "\n\n" + text + rest(others)


def rest(declarations):
    return directives(declarations, None) if declarations else ""


def page(path):
    text = path.read_text()
    head = COMMENT.match(text)
    out = [f"{path.name}\n{'=' * len(path.name)}\n\n", prose(head[1])]
    at, comment, group = 0, None, []
    body = SKIPPED.sub("", text[head.end():])

    def close():
        nonlocal comment, group
        if group:
            out.append(directives(group, comment))
        elif comment:
            out.append(prose(comment))
        comment, group = None, []

    while at < len(body):
        if body[at].isspace():
            blank = re.compile(r"\s*").match(body, at)
            if blank[0].count("\n") > 1:
                close()
            at = blank.end()
        elif body.startswith("/*", at):
            found = COMMENT.match(body, at)
            title = SECTION.match(found[1].strip())
            close()
            if title:
                heading = title[1][0].upper() + title[1][1:]
                out.append(f"{heading}\n{'-' * len(heading)}\n\n")
            else:
                comment = found[1]
            at = found.end()
        else:
            found = DECLARATION.match(body, at)
            group.append(found[0])
            at = found.end()
    close()
    return "".join(out)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:]:
        path = pathlib.Path(name)
        (folder / f"{path.stem}.rst").write_text(page(path))


if __name__ == "__main__":
    main()
