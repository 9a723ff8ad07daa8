"""Reads a program of PyTorch, and builds the extensions that it compiles when it is imported. One line of JSON says what is
wrong, or where the extensions lie.

Run as: python -I -B THIS FILE OPTIONS, where OPTIONS is JSON: {"file", "wanted", "folder", "marker", "strip"}. With "strip"
nothing of the program is run: the line holds the program without its comments, in the same lines.
"""

import ast
import io
import json
import os
import sys
import tokenize

channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
options = json.loads(sys.argv[1])


def end(status, **message):
    # Half of a surrogate pair, which a text of a program may hold, is no character of JSON.
    text = json.dumps(message, ensure_ascii=False)
    channel.write("".join(f"\\\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text) + "\n")
    channel.flush()
    os._exit(status)


def wrong(message, line=0, column=0, log=""):
    end(1, wrong={"line": line or 0, "column": column or 0, "message": message, "log": log[-200_000:]})


def without_comments(source, tree):
    """What is left says the same to Python, and nothing that only looks like a comment is left."""
    lines = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    text = "\n".join(lines).rstrip() + "\n"
    if ast.dump(ast.parse(text), include_attributes=True) != ast.dump(tree, include_attributes=True):
        wrong("the file says something else without its comments")
    return text


with open(options["file"], encoding="utf-8", newline="") as file:
    source = file.read().replace("\r\n", "\n")
if "\r" in source:
    wrong("the file has carriage returns that end no line: where its lines end depends on who reads it")
try:
    tree = ast.parse(source, os.path.basename(options["file"]))
except SyntaxError as error:
    wrong(f"{type(error).__name__}: {error.msg}", error.lineno, error.offset)
except (ValueError, RecursionError, MemoryError) as error:
    wrong(f"{type(error).__name__}: {error}")
if options["wanted"] not in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}:
    wrong(f"the file defines no class {options['wanted']} at its top level")
if options["marker"] in source:
    wrong("the file holds what only the builder writes behind it: leave such lines out")
if options["strip"]:
    try:
        end(0, stripped=without_comments(source, tree))
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        wrong(f"{type(error).__name__}: {error}")
if "cpp_extension" not in source and "load_inline" not in source:
    end(0, built=[])

import importlib.util
import traceback

import torch
import torch.utils.cpp_extension as cpp

built = []


def building(original, position):
    def build(*given, **named):
        name = named.get("name", given[0] if given else None)
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"{name!r} is no name of an extension")
        folder = os.path.join(options["folder"], name)
        os.makedirs(folder, exist_ok=True)
        named["build_directory"] = folder
        named["verbose"] = False
        made = original(*given, **named)
        libraries = [file for file in os.listdir(folder) if file.endswith(".so")]
        if len(libraries) != 1:
            raise RuntimeError(f"the extension `{name}` left {len(libraries)} libraries")
        built.append({"name": name, "path": os.path.join(folder, libraries[0])})
        return made

    return build


cpp.load_inline = building(cpp.load_inline, 0)
cpp.load = building(cpp.load, 0)
try:
    spec = importlib.util.spec_from_file_location("program", options["file"])
    module = importlib.util.module_from_spec(spec)
    sys.modules["program"] = module
    spec.loader.exec_module(module)
except BaseException as error:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == options["file"]]
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    cause = error.__cause__
    said = getattr(cause, "output", None) or getattr(cause, "stdout", None) or b""
    said = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    wrong(text.splitlines()[0][:400], frames[-1].lineno if frames else 0, 0, text + "\n" + said)
end(0, built=built)
