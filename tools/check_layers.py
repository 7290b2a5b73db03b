#!/usr/bin/env python3
"""Checks that includes point down.

  check_layers.py [--root DIR]   one line per violation, exit 1 when there is one
  check_layers.py --self-test    shows on made trees that every kind of violation is caught, and that a clean tree passes

What is checked, for every C++ file in the source folders:
  layer        a file includes only layers that its own layer may include (ALLOWED)
  cycle        no file includes itself through others
  heavy        a third-party header is included only in the place that hides it (HEAVY)
  backend      CUDA, ACL and torch headers only under */cuda, */ascend, csrc; backends do not include each other
  unknown      a public header or a folder that has no layer, a quoted include that leads nowhere
"""

import argparse
import os
import re
import sys
import tempfile

# Layer -> layers it may include beside itself. A layer missing here is reported.
ALLOWED = {
    "base": [],
    "text": ["base"],
    "device": ["base"],
    "graph": ["device", "base"],
    "tensor": ["device", "base"],
    "policy": ["base"],
    "comm": ["device", "base"],
    "ops": ["policy", "tensor", "device", "base"],
    "nn": ["tensor", "device", "base"],
    "cache": ["ops", "tensor", "device", "base"],
    "model": ["cache", "nn", "comm", "tensor", "device", "base"],
    "engine": ["model", "cache", "nn", "comm", "graph", "tensor", "device", "base"],
    "sim": ["ops", "policy", "base"],
    # Front ends see the public headers of every layer, text and base, and nothing else under src.
    "cli": ["text", "base"],
    "server": ["text", "base"],
    "python": ["text", "base"],
    "integrations": [],
}
FRONT_ENDS = {"cli", "server", "python", "integrations"}
# Single headers that a layer may include from a layer it does not see as a whole.
EXTRA_HEADERS = {"sim": {"src/cache/geometry.h", "src/device/op_list.h"}}
# These may include everything.
FREE_FOLDERS = {"tests", "bench", "fuzz"}

# include/tidepool/NAME -> its layer. A folder there (ops/) belongs to the layer of the same name.
PUBLIC_HEADERS = {
    "error.h": "base",
    "version.h": "base",
    "device.h": "device",
    "op.h": "device",
    "event.h": "device",
    "dtype.h": "tensor",
    "tensor.h": "tensor",
    "row_table.h": "tensor",
    "kv_cache.h": "cache",
    "checkpoint.h": "model",
    "engine.h": "engine",
    "bench.h": "engine",
    "sim.h": "sim",
}

# Third-party header -> prefixes of the files that may include it.
HEAVY = [
    (re.compile(r"simdjson"), ["src/base/json.cc"]),
    (re.compile(r"CLI/"), ["src/base/flags.cc"]),
    (re.compile(r"nlohmann/"), []),
    (re.compile(r"yaml-cpp/"), ["cli/yaml.cc"]),
    (re.compile(r"pcre2"), ["src/text/"]),
    (re.compile(r"utf8proc"), ["src/text/"]),
    (re.compile(r"hwy/"), ["src/nn/cpu/", "src/ops/cpu/", "src/nn/simd_target.cc"]),
]
BACKEND_HEADER = re.compile(r"(cuda|cub/|thrust/|cublas|cudnn|nccl|nvrtc|acl/|aclnn|kernel_operator|torch/|ATen/|c10/)")
BACKEND_PLACE = re.compile(r"(^|/)(cuda|ascend|csrc)/")

SOURCE = re.compile(r"\.(h|hh|hpp|cuh|cc|cpp|cu)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
ROOTS = ["src", "include", "cli", "server", "python", "integrations", "tests", "bench", "fuzz"]


def source_files(root):
    for top in ROOTS:
        for folder, subfolders, names in os.walk(os.path.join(root, top)):
            subfolders[:] = [s for s in subfolders if not s.startswith(".") and s not in ("golden", "corpus")]
            for name in names:
                if SOURCE.search(name):
                    yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def read_includes(root, file):
    with open(os.path.join(root, file), encoding="utf-8", errors="replace") as text:
        for number, line in enumerate(text, 1):
            match = INCLUDE.match(line)
            if match:
                yield number, match.group(1) == '"', match.group(2)


def layer_of(file):
    """The layer of a project file; None when it has none."""
    parts = file.split("/")
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 and parts[1] in ALLOWED else None
    if parts[0] == "include":
        if len(parts) > 3:
            return parts[2] if parts[2] in ALLOWED else None
        return PUBLIC_HEADERS.get(parts[-1])
    return parts[0]


def is_test(file):
    return re.search(r"_test\.(cc|cpp|cu)$", file) is not None


def resolve(files, file, name):
    """The project file that `name` means when `file` includes it; None when there is none."""
    beside = os.path.normpath(os.path.join(os.path.dirname(file), name)).replace(os.sep, "/")
    places = [beside, "src/" + name, "include/" + name]
    if is_test(file) or layer_of(file) in FREE_FOLDERS:
        places += ["tests/" + name, name]
    return next((os.path.normpath(p).replace(os.sep, "/") for p in places if os.path.normpath(p) in files), None)


def layer_problem(file, target):
    """Why `file` may not include `target`; None when it may."""
    layer, other = layer_of(file), layer_of(target)
    if layer in FREE_FOLDERS or layer == other:
        return None
    if other in FREE_FOLDERS:
        return None if is_test(file) and other == "tests" else f"product code includes {other}"
    if layer in FRONT_ENDS and target.startswith("include/"):
        return None
    if other in ALLOWED.get(layer, []) or target in EXTRA_HEADERS.get(layer, ()):
        return None
    allowed = ", ".join(ALLOWED.get(layer, [])) or "no other layer"
    if layer in FRONT_ENDS:
        allowed = ", ".join(["include/tidepool"] + ALLOWED[layer])
    return f"layer {layer} may include {allowed}; not {other}"


def backend_of(file):
    match = re.search(r"/(cpu|cuda|ascend)/", file)
    return match.group(1) if match else None


def foreign_problem(file, name):
    """Why `file` may not include the third-party header `name`; None when it may."""
    if layer_of(file) in FREE_FOLDERS:
        return None
    for pattern, places in HEAVY:
        if pattern.match(name) and not any(file.startswith(place) for place in places):
            return "heavy", f"<{name}> belongs only in {', '.join(places) or 'no file at all'}"
    if BACKEND_HEADER.match(name) and not BACKEND_PLACE.search(file):
        return "backend", f"<{name}> belongs only under cuda/, ascend/ or csrc/"
    return None


def is_foreign(name):
    """Whether `name` is a known third-party header, which some libraries want in quotes."""
    return BACKEND_HEADER.match(name) is not None or any(pattern.match(name) for pattern, _ in HEAVY)


def find_cycles(graph):
    """Cycles of the include graph, each once, as lists of files (Tarjan's strongly connected components)."""
    index, low, on_stack, stack, cycles = {}, {}, set(), [], []

    def visit(start):
        work = [(start, iter(graph[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(graph[target])))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    if len(part) > 1 or node in graph[node]:
                        cycles.append(sorted(part))

    for file in sorted(graph):
        if file not in index:
            visit(file)
    return cycles


def check(root):
    """All violations under `root`, as (file:line, kind, sentence)."""
    files = set(source_files(root))
    graph = {file: set() for file in files}
    found = []
    for file in sorted(files):
        if layer_of(file) is None:
            found.append((file, "unknown", "no layer is known for this file; name it in tools/check_layers.py"))
            continue
        for number, quoted, name in read_includes(root, file):
            where = f"{file}:{number}"
            target = resolve(files, file, name)
            if target is not None:
                graph[file].add(target)
                if layer_of(target) is None:
                    continue  # reported at the target itself
                problem = layer_problem(file, target)
                if problem:
                    found.append((where, "layer", f"includes {target}: {problem}"))
                mine, theirs = backend_of(file), backend_of(target)
                if mine and theirs and mine != theirs:
                    found.append((where, "backend", f"includes {target}: backend {mine} must not know {theirs}"))
                continue
            problem = foreign_problem(file, name)
            if problem:
                found.append((where, *problem))
            elif (quoted and not is_foreign(name)) or name.startswith("tidepool/"):
                found.append((where, "unknown", f'"{name}" leads to no file of the project'))
    for cycle in find_cycles(graph):
        found.append((cycle[0], "cycle", "files include each other: " + ", ".join(cycle)))
    return found


# --self-test: files of a clean tree, and changes to it with the kind of violation each must give.
CLEAN = {
    "include/tidepool/error.h": "#include <string>\n",
    "include/tidepool/op.h": "#include <vector>\n",
    "include/tidepool/dtype.h": "",
    "include/tidepool/engine.h": '#include "tidepool/dtype.h"\n#include "tidepool/error.h"\n',
    "include/tidepool/ops/plan.h": '#include "tidepool/op.h"\n',
    "src/base/check.h": '#include "tidepool/error.h"\n',
    "src/base/json.h": "",
    "src/base/json.cc": '#include "base/json.h"\n#include <simdjson.h>\n#include "base/check.h"\n',
    "src/base/json_test.cc": '#include "base/json.h"\n#include <gtest/gtest.h>\n#include "helper.h"\n',
    "src/text/tokenizer.h": '#include "base/check.h"\n',
    "src/text/regex.cc": "#include <pcre2.h>\n",
    "src/policy/fifo.h": "",
    "src/cache/geometry.h": '#include "base/check.h"\n',
    "src/sim/replay.cc": '#include "cache/geometry.h"\n#include "policy/fifo.h"\n',
    "src/nn/rows.h": '#include "tidepool/dtype.h"\n',
    "src/nn/cpu/product.cc": '#include <hwy/highway.h>\n#include "nn/rows.h"\n',
    "src/nn/cuda/product.cu": '#include <cuda_runtime.h>\n#include "nn/rows.h"\n',
    "src/engine/engine.cc": '#include "tidepool/engine.h"\n#include "cache/geometry.h"\n',
    "cli/main.cc": '#include "tidepool/engine.h"\n#include "text/tokenizer.h"\n#include "base/json.h"\n',
    "tests/helper.h": '#include "engine/../cache/geometry.h"\n',
    "bench/bench_x.cc": '#include "cache/geometry.h"\n',
}
BREAKS = [
    ("upward include", "layer", "src/base/check.h", '#include "cache/geometry.h"\n'),
    ("text sees tensors", "layer", "src/text/tokenizer.h", '#include "tidepool/dtype.h"\n'),
    ("policy sees operators", "layer", "src/policy/fifo.h", '#include "tidepool/ops/plan.h"\n'),
    ("nn sees the operators", "layer", "src/nn/rows.h", '#include "tidepool/ops/plan.h"\n'),
    ("engine sees text", "layer", "src/engine/engine.cc", '#include "text/tokenizer.h"\n'),
    ("a public header points up", "layer", "include/tidepool/dtype.h", '#include "tidepool/engine.h"\n'),
    ("cli sees a layer below the API", "layer", "cli/main.cc", '#include "nn/rows.h"\n'),
    ("a relative path around the table", "layer", "src/base/json.cc", '#include "../cache/geometry.h"\n'),
    ("angle brackets around the table", "layer", "src/base/json.h", "#include <cache/geometry.h>\n"),
    ("sim sees more of cache than geometry.h", "layer", "src/sim/replay.cc", '#include "cache/other.h"\n'),
    ("product code includes tests", "unknown", "src/engine/engine.cc", '#include "helper.h"\n'),
    ("product code includes tests by path", "layer", "src/engine/engine.cc", '#include "../../tests/helper.h"\n'),
    ("a cycle between two files", "cycle", "src/base/json.h", '#include "base/cycle.h"\n'),
    ("a file that includes itself", "cycle", "src/policy/fifo.h", '#include "policy/fifo.h"\n'),
    ("simdjson outside base/json.cc", "heavy", "src/nn/rows.h", "#include <simdjson.h>\n"),
    ("yaml-cpp outside cli/yaml.cc", "heavy", "cli/main.cc", "#include <yaml-cpp/yaml.h>\n"),
    ("CLI11 in the command line", "heavy", "cli/main.cc", "#include <CLI/CLI.hpp>\n"),
    ("pcre2 outside text", "heavy", "src/base/check.h", "#include <pcre2.h>\n"),
    ("highway outside cpu folders", "heavy", "src/nn/rows.h", "#include <hwy/highway.h>\n"),
    ("CUDA outside cuda folders", "backend", "src/nn/rows.h", "#include <cuda_runtime.h>\n"),
    ("one backend sees another", "backend", "src/nn/cpu/product.cc", '#include "nn/cuda/product.cu"\n'),
    ("an include that leads nowhere", "unknown", "src/nn/rows.h", '#include "nn/gone.h"\n'),
    ("a public header without a layer", "unknown", "include/tidepool/surprise.h", ""),
    ("a folder without a layer", "unknown", "src/misc/x.cc", ""),
]
EXTRA_FILES = {"src/cache/other.h": "", "src/base/cycle.h": '#include "base/json.h"\n'}


def write_tree(root, tree):
    for name, text in tree.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)


def self_test():
    failures = 0
    for title, kind, file, line in [("a clean tree", None, None, None)] + BREAKS:
        tree = dict(CLEAN)
        if kind:
            tree.update(EXTRA_FILES if any(os.path.basename(x) in line for x in EXTRA_FILES) else {})
            tree[file] = tree.get(file, "") + line
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, tree)
            found = check(root)
        good = any(k == kind for _, k, _ in found) if kind else not found
        failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {title}" + ("" if good else f": wanted {kind}, found {found}"))
    print(f"{len(BREAKS) + 1 - failures} passed, {failures} failed")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description="checks that includes point down")
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    found = check(args.root)
    for where, kind, sentence in found:
        print(f"{where}: {kind}: {sentence}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
