"""Reads a program of PyTorch, and builds the extensions that it compiles: when it is imported, else when its model is made or called
for the first time. One line of JSON says what is wrong, or where the extensions lie.

Run as: python -I -B FILE OPTIONS, where FILE is `arguments.py` with this file behind it, and OPTIONS is JSON: {"file", "wanted",
"folder", "marker", "strip", "init", "call", "inputs"}. With "strip" nothing of the program is run: the line holds the program without
its comments, in the same lines.
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
import subprocess
import traceback

import torch
import torch.utils.cpp_extension as cpp

built, failures, found = [], [], os.path.join(options["folder"], "found.json")


class Found(BaseException):
    """Raised where a program uses an extension, which needs a GPU."""


class StandIn:
    """Takes the place of an extension: the build runs no code of it."""

    def __getattr__(self, name):
        return self

    def __call__(self, *given, **named):
        raise Found


USAGE_CHARS = 100_000


def listening(printed):
    """Returns `subprocess.run`, which also keeps what a process printed."""
    original = subprocess.run

    def run(*given, **named):
        result = original(*given, **named)
        if isinstance(result.stdout, bytes):
            printed.append(result.stdout.decode(errors="replace"))
        return result

    return run


def usage_in(printed):
    """Returns the lines in which ptxas says what each kernel uses."""
    lines = [line for text in printed for line in text.splitlines()]
    kept = [line for line in lines if line.startswith("ptxas info") or "bytes stack frame" in line]
    return "\n".join(kept)[:USAGE_CHARS]


def building(original):
    def build(*given, **named):
        name = named.get("name", given[0] if given else None)
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"{name!r} is no name of an extension")
        folder = os.path.join(options["folder"], name)
        os.makedirs(folder, exist_ok=True)
        named["build_directory"] = folder
        named["verbose"] = False
        printed, run = [], subprocess.run
        subprocess.run = listening(printed)
        try:
            made = original(*given, **named)
        except Exception as error:
            failures.append(error)
            raise
        finally:
            subprocess.run = run
        libraries = [file for file in os.listdir(folder) if file.endswith(".so")]
        if len(libraries) != 1:
            raise RuntimeError(f"the extension `{name}` left {len(libraries)} libraries")
        built.append({"name": name, "path": os.path.join(folder, libraries[0]), "usage": usage_in(printed)})
        if not is_looking:
            return made
        # At once, as the process may crash later.
        with open(found, "w", encoding="utf-8") as file:
            json.dump(built, file)
        return StandIn()

    return build


def look(kind):
    """Constructs the model and calls it until it uses an extension. Tensors have no memory, if the constructor allows that."""
    arguments = decoded(options["init"])
    for device in ("meta", "cpu"):
        try:
            with torch.device(device), torch.no_grad():
                model = kind(*arguments)
                tensors = iter([torch.empty(entry["shape"], dtype=getattr(torch, entry["dtype"]), device="meta")
                                for entry in options["inputs"]])
                call = [decoded_call(entry) for entry in options["call"] or [{"input": True}] * len(options["inputs"])]
                # On the processor, operators of the library would take too long.
                if device == "meta":
                    model.eval()(*[next(tensors) if is_input else value for is_input, value in call])
        except Found:
            return
        except Exception as error:
            while error is not None:
                if error in failures:
                    fail(error)
                error = error.__cause__ or error.__context__
            if built:
                return


def look_apart(kind):
    """Does so in a process of its own, which may crash."""
    child = os.fork()
    if child == 0:
        try:
            look(kind)
        finally:
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 1:
        os._exit(1)  # it has said what is wrong
    if os.path.isfile(found):
        with open(found, encoding="utf-8") as file:
            built.extend(json.load(file))


def fail(error):
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == options["file"]]
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    cause = error.__cause__
    said = getattr(cause, "output", None) or getattr(cause, "stdout", None) or b""
    said = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    wrong(text.splitlines()[0][:400], frames[-1].lineno if frames else 0, 0, text + "\n" + said)


is_looking = False
os.makedirs(options["folder"], exist_ok=True)
cpp.load_inline = building(cpp.load_inline)
cpp.load = building(cpp.load)
try:
    spec = importlib.util.spec_from_file_location("program", options["file"])
    module = importlib.util.module_from_spec(spec)
    sys.modules["program"] = module
    spec.loader.exec_module(module)
except BaseException as error:
    fail(error)
kind = getattr(module, options["wanted"], None)
if not built and callable(kind):
    is_looking = True
    look_apart(kind)
end(0, built=built)
